"""Workspaces: what a worker changed, and its branch in the repository of a person."""

from __future__ import annotations

from postroom.control.bodies import ApplyBody, DiffBody, SyncBody
from postroom.control.in_flight import acted_on, came_by
from postroom.control.ops.table import Operations
from postroom.control.parameters import AgentRef, TaskRef
from postroom.control.parts import Parts
from postroom.errors import Conflict, Forbidden, InvalidInput, NotFound
from postroom.protocol import shapes
from postroom.protocol.principal import Principal, Scope
from postroom.store.agents import Agent
from postroom.workers.workspaces.records import Held
from postroom.workers.workspaces.showing import Joined, command, difference, joined
from postroom.workers.workspaces.syncing import to_resolve
from postroom.workers.workspaces.taking import Offer, tree_of

WAITS = "waits for the end of its turn"


def _shown_merge(found: Joined | None) -> shapes.Merge | None:
    """A merge of a worker's agent, as it is answered."""
    if found is None:
        return None
    return {
        "commit": found.commit,
        "onto": found.onto,
        "before": found.before,
        "text": found.text,
        "cut": found.cut,
    }


operations = Operations()


def _shown(parts: Parts, uid: str) -> shapes.Workspace:
    found = parts.workers.work.shown(uid, left=False)
    if found is None:
        raise NotFound("it works on no folder of yours any more")
    return found


async def _brought(parts: Parts, ref: str, *, large: bool) -> tuple[Agent, Held]:
    agent, record = await parts.workers.record(ref)
    acted_on(worker=agent.uid)
    return agent, await parts.workers.work.bring(agent, record, large=large)


@operations.post("/v1/workers/{ref}/diff", Scope.OPERATE, fails=(NotFound, Conflict))
async def diff(parts: Parts, ref: AgentRef, body: DiffBody) -> shapes.Difference:
    """Bring back what a worker has done, and show what it changed since it began.

    `paths` are files and folders of the repository, or of the folder that it works on; `text` is what `git diff`
    prints. Files over `workspace.max_file_mb` that it has not committed stay in its folder and are in `left`, until
    `large` lets them in. `merge` is one that its agent made after a conflict, until it counts. 404 if it works on
    no folder, 409 if somebody is on its branch.
    """
    agent, held = await _brought(parts, ref, large=body.large)
    git = parts.workers.work.store(agent.uid, held)
    found = await difference(git, held, body.paths, stat=body.stat, whole=body.whole)
    merge = await joined(git, held)
    return {
        "worker": agent.nick,
        "workspace": _shown(parts, agent.uid),
        "tree": await tree_of(git, held.brought),
        "text": found.text,
        "cut": found.cut,
        "files": found.files,
        "commits": found.commits,
        "left": list(held.left),
        "command": "" if merge else command(held),
        "merge": _shown_merge(merge),
    }


@operations.post("/v1/workers/{ref}/sync", Scope.OPERATE, fails=(NotFound, Conflict))
async def sync(parts: Parts, ref: AgentRef, body: SyncBody, me: Principal) -> shapes.Synced:
    """Bring a worker up to the newest commit of the branch that it began from.

    It is merged, or with `rebase` rebased. It waits for the end of the agent's turn, at most `timeout` seconds. On
    `conflicts` the worker stays as it was; with `resolve` its agent gets a task to join both, and `task` is its id.
    The `merge` that it makes is answered here from then on, and nothing else is done, until a call says by `accept`
    that it counts; before that it is not applied.
    409 if the turn goes on, or the worker is in the middle of a merge of its own.
    """
    if body.resolve:
        me.require(Scope.TASK)
    agent, record = await parts.workers.record(ref)
    acted_on(worker=agent.uid)
    await parts.workers.refuse_beyond(agent.uid, me.by)
    with parts.workers.work.spaces.saying(agent.uid, WAITS):
        if not body.accept and not await parts.views.rests(agent.uid, body.timeout):
            raise Conflict(
                f"@{agent.nick} is still at work after {body.timeout:g} s: nothing was changed",
                remedy="wait longer with --timeout, or postroom interrupt it",
            )
    found = await parts.workers.work.sync(
        agent, record, rebase=body.rebase, resolve=body.resolve, accept=body.accept
    )
    held, task = found.held, ""
    if found.conflicts and body.resolve:
        said = to_resolve(held, found, rebase=body.rebase)
        given = await parts.assigner.delegate(me.uid, to=agent, skill="", said=said, door=came_by())
        task = given.id
    return {
        "worker": agent.nick,
        "workspace": _shown(parts, agent.uid),
        "onto": found.onto,
        "commit": held.brought,
        "taken": found.taken,
        "conflicts": list(found.conflicts),
        "task": task,
        "left": list(held.left),
        "merge": _shown_merge(found.joined),
    }


async def _applied(
    parts: Parts, ref: str, body: ApplyBody, by: str, task: str = ""
) -> shapes.Applied:
    agent, record = await parts.workers.record(ref)
    acted_on(worker=agent.uid)
    if body.merge and body.undo:
        raise InvalidInput("either merge or undo")
    if body.merge or body.undo:
        await parts.workers.refuse_beyond(agent.uid, by)
    if not body.undo:
        await parts.workers.work.bring(agent, record)
    spaces, merged = parts.workers.work.spaces, ""
    if body.undo:
        done = await spaces.undo(agent.uid)
        offer = Offer(done.onto, done.after)
    elif body.merge:
        done = await spaces.merge(agent.uid, body.tree)
        offer, merged = Offer(done.onto, done.before), done.after
    else:
        offer = await _offered(parts, agent, by)
    held = parts.workers.work.held(agent.uid)
    if held is None:
        raise NotFound(f"@{agent.nick} works on no folder of yours any more")
    return {
        "task": task,
        "worker": agent.nick,
        "path": held.top or held.path,
        "mode": held.mode,
        "branch": held.branch,
        "tree": await tree_of(parts.workers.work.store(agent.uid, held), held.brought),
        "command": command(held),
        "merged": merged,
        "onto": offer.onto,
        "back": offer.back,
        "notes": [*offer.notes, *held.warnings],
        "hinders": offer.hinders,
        "left": list(held.left),
    }


async def _offered(parts: Parts, agent: Agent, by: str) -> Offer:
    try:
        await parts.workers.refuse_beyond(agent.uid, by)
    except Forbidden as error:
        return Offer(hinders=error.message)
    return await parts.workers.work.spaces.offer(agent.uid)


@operations.post("/v1/workers/{ref}/apply", Scope.OPERATE, fails=(NotFound, Conflict))
async def apply(parts: Parts, ref: AgentRef, body: ApplyBody, me: Principal) -> shapes.Applied:
    """Bring a worker's branch up to date, and say what a merge would do.

    With `merge` it is merged into what is checked out, `onto`, if that needs nobody; none of the person's hooks
    runs, and nothing is signed. `back` is the commit that `onto` was at before. With the `tree` that a diff or this
    route has answered, only that is merged: 409 if the worker's files are others by now.
    With `undo` the last merge is taken back, and `back` is where `onto` is then.
    Without both, `notes` say what a merge leaves out of what git would do, and `hinders` why there can be none now.
    `command` is the command that merges it, "" if there is nothing to merge. 409 if the repository has uncommitted
    changes, if the branches conflict, or if the branch has moved since the merge; nothing is changed then.
    """
    return await _applied(parts, ref, body, me.by)


@operations.post("/v1/tasks/{ref}/apply", Scope.OPERATE, fails=(NotFound, Conflict))
async def apply_task(parts: Parts, ref: TaskRef, body: ApplyBody, me: Principal) -> shapes.Applied:
    """Do what `POST /v1/workers/{ref}/apply` does for the worker of a task."""
    task = await parts.tasks.find(ref)
    acted_on(task=task.id)
    return await _applied(parts, task.worker, body, me.by, task.id)
