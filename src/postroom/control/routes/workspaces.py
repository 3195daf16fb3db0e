"""Workspaces: what a worker changed, and its branch in the repository of a person."""

from __future__ import annotations

from postroom.control.bodies import ApplyBody, DiffBody, SyncBody
from postroom.control.described import fails
from postroom.control.in_flight import acted_on, came_by
from postroom.control.parameters import AgentRef, TaskRef
from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.control.routing import Routes
from postroom.errors import Conflict, NotFound
from postroom.protocol import shapes
from postroom.protocol.principal import Scope
from postroom.store.agents import Agent
from postroom.workers.workspaces.records import Held
from postroom.workers.workspaces.showing import command, difference, merge
from postroom.workers.workspaces.syncing import to_resolve

WAITS = "waits for the end of its turn"


def router(parts: Parts) -> Routes:
    """The routes; git runs on the post room's machine, as its user."""
    routes = Routes()
    workers = parts.workers

    def shown(uid: str) -> shapes.Workspace:
        found = workers.work.shown(uid, left=False)
        if found is None:
            raise NotFound("it works on no folder of yours any more")
        return found

    async def brought(ref: str) -> tuple[Agent, Held]:
        agent, record = await workers.record(ref)
        acted_on(worker=agent.uid)
        return agent, await workers.work.bring(agent, record)

    @routes.post("/workers/{ref}/diff")
    @needs(Scope.OPERATE)
    @fails(NotFound, Conflict)
    async def diff(ref: AgentRef, body: DiffBody) -> shapes.Difference:
        """Bring back what a worker has done, and show what it changed since it began.

        `paths` are files and folders of the repository, or of the folder that it works on; `text` is what `git diff`
        prints. 404 if it works on no folder, 409 if somebody is on its branch.
        """
        agent, held = await brought(ref)
        git = workers.work.store(agent.uid, held)
        found = await difference(git, held, body.paths, stat=body.stat)
        return {
            "worker": agent.nick,
            "workspace": shown(agent.uid),
            "text": found.text,
            "cut": found.cut,
            "files": found.files,
            "commits": found.commits,
            "left": list(held.left),
            "command": command(held),
        }

    @routes.post("/workers/{ref}/sync")
    @needs(Scope.OPERATE)
    @fails(NotFound, Conflict)
    async def sync(ref: AgentRef, body: SyncBody, me: Caller) -> shapes.Synced:
        """Bring a worker up to the newest commit of the branch that it began from.

        It is merged, or with `rebase` rebased. It waits for the end of the agent's turn, at most `timeout` seconds. On
        `conflicts` the worker stays as it was; with `resolve` its agent gets a task to join both, and `task` is its id.
        409 if the turn goes on, or the worker is in the middle of a merge of its own.
        """
        if body.resolve:
            me.require(Scope.TASK)
        agent, record = await workers.record(ref)
        acted_on(worker=agent.uid)
        await workers.refuse_beyond(agent.uid, me.by)
        with workers.work.spaces.saying(agent.uid, WAITS):
            if not await parts.views.rests(agent.uid, body.timeout):
                raise Conflict(
                    f"@{agent.nick} is still at work after {body.timeout:g} s: nothing was changed",
                    remedy="wait longer with --timeout, or postroom interrupt it",
                )
        found = await workers.work.sync(agent, record, rebase=body.rebase)
        held, task = found.held, ""
        if found.conflicts and body.resolve:
            said = to_resolve(held, found, rebase=body.rebase)
            given = await parts.assigner.delegate(
                me.uid, to=agent.uid, skill="", said=said, door=came_by()
            )
            task = given.id
        return {
            "worker": agent.nick,
            "workspace": shown(agent.uid),
            "onto": found.onto,
            "commit": held.brought,
            "taken": found.taken,
            "conflicts": list(found.conflicts),
            "task": task,
            "left": list(held.left),
        }

    @routes.post("/tasks/{ref}/apply")
    @needs(Scope.OPERATE)
    @fails(NotFound, Conflict)
    async def apply(ref: TaskRef, body: ApplyBody, me: Caller) -> shapes.Applied:
        """Bring the branch of a task's worker up to date, or merge it.

        With `merge` it is merged into what is checked out, if that needs nobody.
        `command` is the command that merges it, "" if there is nothing to merge. 409 if the repository has uncommitted
        changes, or if the branches conflict; nothing is merged then.
        """
        task = await parts.tasks.find(ref)
        acted_on(task=task.id)
        if body.merge:
            await workers.refuse_beyond(task.worker, me.by)
        agent, held = await brought(task.worker)
        merged = await merge(workers.work.store(agent.uid, held), held) if body.merge else ""
        return {
            "task": task.id,
            "worker": agent.nick,
            "path": held.top or held.path,
            "mode": held.mode,
            "branch": held.branch,
            "command": command(held),
            "merged": merged,
            "left": list(held.left),
        }

    return routes
