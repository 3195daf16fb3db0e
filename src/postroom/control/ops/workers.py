"""Workers: spawn, list, show, stop, restart, revoke, remove."""

from __future__ import annotations

import time
from typing import Annotated

from pydantic import Field
from starlette.responses import Response

from postroom.control.bodies import RestartBody, SpawnBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.table import Answer, Operations
from postroom.control.parameters import AgentRef
from postroom.control.parts import Parts
from postroom.control.pinned import PIN, pin_of
from postroom.errors import Conflict, NotFound, PeerError, Refused, RequestTimeout
from postroom.events.policies import autonomy_rule, autonomy_said
from postroom.protocol import answers, shapes
from postroom.protocol.autonomy import Autonomy
from postroom.protocol.limits import MAX_PATH, MAX_TEMPLATE_BODY
from postroom.protocol.principal import Principal, Scope
from postroom.store.agents import Party
from postroom.workers import tidying
from postroom.workers.launch import SpawnRequest
from postroom.workers.served_card import fetch_card, fetch_far_card

InRepository = Annotated[
    str, Field(max_length=MAX_PATH, description="A folder of the machine, in a repository.")
]
MAX_NAMED = 40_000
Named = Annotated[
    str,
    Field(
        max_length=MAX_NAMED,
        description="Commits and uids, with commas between, that are deleted though nothing else has them.",
    ),
]
Purge = Annotated[bool, Field(description="Delete its workspace, too.")]


operations = Operations()


async def _begun(parts: Parts, uid: str, wait: float) -> shapes.Worker:
    acted_on(worker=uid)
    if not wait:
        return await parts.views.one(uid)
    started = await parts.views.begun(uid, wait)
    return {**await parts.views.one(uid), "started": started}


@operations.post(
    "/v1/workers",
    Scope.OPERATE,
    status=201,
    most=MAX_TEMPLATE_BODY,
    fails=(Conflict, Refused, *PIN),
)
async def spawn(parts: Parts, body: SpawnBody, me: Principal) -> shapes.Worker:
    """Make a worker of a template and start it.

    `template` is TOML text, `files` name to base64, `path` where the caller has the template; `isolation` is the
    least level of a wall that is accepted; with `autonomous` its agent asks for nothing that the template does not
    deny. With a PIN set, it is needed. With `wait`, up to 30 seconds, it answers
    when the agent has started or ended, with `started`: true, false, or null if that was not known in time.
    """
    by = Party(me.uid, me.nick, me.kind)
    request = SpawnRequest(
        template=body.template,
        files=body.files,
        values=body.set,
        nick=body.name.removeprefix("@"),
        project=body.project.removeprefix("#"),
        sandbox=body.sandbox,
        isolation=body.isolation,
        path=body.path,
        workspace=body.workspace,
        mode=body.mode,
        branches=body.branches,
        by=me.by,
        rules=[autonomy_rule(Autonomy.ALL, by, time.time())] if body.autonomous else [],
    )
    agent = await parts.workers.spawn(request, pin_of(parts, me, body.pin))
    if body.autonomous:
        await parts.policies.tell(agent, autonomy_said(Autonomy.ALL), by)
    return await _begun(parts, agent.uid, body.wait)


@operations.get("/v1/workers", Scope.OPERATE)
async def list_(parts: Parts) -> answers.Workers:
    """List the workers."""
    return {"workers": await parts.views.all(), "next": None}


@operations.get("/v1/workers/{ref}", Scope.OPERATE, fails=(NotFound,))
async def show(parts: Parts, ref: AgentRef) -> shapes.Worker:
    """Show a worker."""
    return await parts.views.one(ref)


@operations.get(
    "/v1/workers/{ref}/agent-card.json",
    Scope.READ,
    fails=(NotFound, Conflict, PeerError, RequestTimeout),
    answers=(Answer(200, shapes.Card),),
)
async def card(parts: Parts, ref: AgentRef) -> Response:
    """Fetch the Agent Card from the worker's own A2A server.

    409 if it does not run or listen.
    """
    agent, _ = await parts.workers.record(ref)
    run = parts.workers.run_of(agent.uid)
    if run is None or not run.running:
        raise Conflict(f"@{agent.nick} does not run", remedy=f"postroom restart {agent.nick}")
    if run.far is not None:
        card = await fetch_far_card(await run.far.inward())
    else:
        card = await fetch_card(parts.workers.state_folder(agent.uid))
    return Response(card, media_type="application/json")


@operations.post("/v1/workers/{ref}/stop", Scope.OPERATE, fails=(NotFound, Conflict))
async def stop(parts: Parts, ref: AgentRef) -> shapes.Worker:
    """Stop a worker."""
    agent = await parts.workers.stop(ref)
    acted_on(worker=agent.uid)
    return await parts.views.one(agent.uid)


@operations.post(
    "/v1/workers/{ref}/restart",
    Scope.OPERATE,
    most=MAX_TEMPLATE_BODY,
    fails=(NotFound, Conflict, Refused, *PIN),
)
async def restart(
    parts: Parts, ref: AgentRef, me: Principal, body: RestartBody | None = None
) -> shapes.Worker:
    """Start a worker again, perhaps with a new template.

    `changed` names the keys and files of a new template that differ. 409 if it names another nick or project; what
    is refused leaves the worker as it is. With a PIN set, it is needed where the new template or a file differs.
    """
    asked = body or RestartBody()
    agent, changed = await parts.workers.restart(
        ref, me.by, pin_of(parts, me, asked.pin), asked.template, asked.files
    )
    return {**await _begun(parts, agent.uid, asked.wait), "changed": list(changed)}


@operations.post("/v1/workers/{ref}/revoke", Scope.OPERATE, fails=(NotFound, Conflict))
async def revoke(parts: Parts, ref: AgentRef) -> shapes.Worker:
    """Stop a worker and void every credential that it ever got."""
    (agent,) = await parts.workers.revoke(ref)
    acted_on(worker=agent.uid)
    return await parts.views.one(agent.uid)


@operations.post("/v1/workers/revoke", Scope.OPERATE, fails=(Conflict,))
async def revoke_all(parts: Parts) -> answers.Workers:
    """Stop all workers and void their credentials."""
    await parts.workers.revoke()
    return {"workers": await parts.views.all(), "next": None}


@operations.delete("/v1/workers/{ref}", Scope.OPERATE, fails=(NotFound, Conflict))
async def remove(parts: Parts, ref: AgentRef, purge: Purge = False) -> shapes.Removed:
    """End a worker for good.

    Its workspace stays in `folder`, unless `purge` is true.
    """
    try:
        agent, folder = await parts.workers.remove(ref, purge=purge)
    finally:
        await (
            parts.sweep()
        )  # its waiting messages become dead letters, and their senders hear of it
    acted_on(worker=agent.uid)
    return {"uid": agent.uid, "nick": agent.nick, "folder": str(folder), "purged": purge}


@operations.get("/v1/leftovers", Scope.OPERATE)
async def leftovers(
    parts: Parts, me: Principal, repository: InRepository = ""
) -> answers.Leftovers:
    """List what removed workers have left on disk, and in a repository.

    With `repository`, a folder in it, `branches` are those there of workers that are there no more.
    """
    return _shown(await tidying.left(parts.workers, repository, me.by))


@operations.delete("/v1/leftovers", Scope.OPERATE)
async def prune_leftovers(
    parts: Parts, me: Principal, repository: InRepository = "", named: Named = ""
) -> answers.Leftovers:
    """Delete what removed workers have left on disk, or in a repository.

    Without it, all folders go. With it, a branch with commits that nothing else has, and a folder with `unsaved`
    files stay, unless `named` has the commit of the one and the uid of the other.
    """
    if repository:
        return _shown(await tidying.tidy(parts.workers, repository, me.by, named.split(",")))
    gone = tidying.Left([(each, nick, ()) for each, nick in await parts.workers.prune()], [])
    return _shown(gone)


def _shown(found: tidying.Left) -> answers.Leftovers:
    leftovers: list[shapes.Leftover] = [
        {
            "uid": left.uid,
            "nick": nick,
            "folder": str(left.folder),
            "bytes": left.size,
            "unsaved": list(unsaved),
        }
        for left, nick, unsaved in found.folders
    ]
    branches: list[shapes.StaleBranch] = [
        {"name": each.name, "commit": each.commit, "merged": each.merged, "commits": each.commits}
        for each in found.branches
    ]
    return {"leftovers": leftovers, "branches": branches, "next": None}
