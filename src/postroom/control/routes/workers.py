"""Workers: spawn, list, show, stop, restart, revoke, remove, and the events that they report."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Depends, Response

from postroom.control.bodies import EventsBody, RestartBody, SpawnBody
from postroom.control.in_flight import acted_on
from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.errors import Conflict, Forbidden
from postroom.protocol import subjects
from postroom.protocol.principal import DOOR, Scope
from postroom.workers.launch import SpawnRequest
from postroom.workers.leftovers import Leftover
from postroom.workers.served_card import fetch_card, fetch_far_card


def router(parts: Parts) -> APIRouter:
    """The routes for who operates workers."""
    routes = APIRouter(prefix="/workers")
    workers, views = parts.workers, parts.views

    async def begun(uid: str, wait: float) -> dict[str, Any]:
        acted_on(worker=uid)
        if not wait:
            return await views.one(uid)
        started = await views.begun(uid, wait)
        return await views.one(uid) | {"started": started}

    @routes.post("", status_code=201)
    @needs(Scope.OPERATE)
    async def spawn(body: SpawnBody) -> dict[str, Any]:
        request = SpawnRequest(
            template=body.template,
            files=body.files,
            values=body.set,
            nick=body.name.removeprefix("@"),
            project=body.project.removeprefix("#"),
            sandbox=body.sandbox,
            isolation=body.isolation,
            path=body.path,
        )
        return await begun((await workers.spawn(request)).uid, body.wait)

    @routes.get("")
    @needs(Scope.OPERATE)
    async def listing() -> dict[str, Any]:
        return {"workers": await views.all()}

    @routes.get("/{ref}")
    @needs(Scope.OPERATE)
    async def show(ref: str) -> dict[str, Any]:
        return await views.one(ref)

    @routes.get("/{ref}/agent-card.json")
    @needs(Scope.READ)
    async def own_card(ref: str) -> Response:
        agent, _ = await workers.record(ref)
        run = workers.run_of(agent.uid)
        if run is None or not run.running:
            raise Conflict(f"@{agent.nick} does not run", remedy=f"postroom restart {agent.nick}")
        if run.far is not None:
            card = await fetch_far_card(await run.far.inward())
        else:
            card = await fetch_card(workers.state_folder(agent.uid))
        return Response(card, media_type="application/json")

    @routes.post("/{ref}/stop")
    @needs(Scope.OPERATE)
    async def stop(ref: str) -> dict[str, Any]:
        agent = await workers.stop(ref)
        acted_on(worker=agent.uid)
        return await views.one(agent.uid)

    @routes.post("/{ref}/restart")
    @needs(Scope.OPERATE)
    async def restart(ref: str, body: RestartBody | None = None) -> dict[str, Any]:
        asked = body or RestartBody()
        agent, changed = await workers.restart(ref, asked.template, asked.files)
        return await begun(agent.uid, asked.wait) | {"changed": list(changed)}

    @routes.post("/{ref}/revoke")
    @needs(Scope.OPERATE)
    async def revoke(ref: str) -> dict[str, Any]:
        (agent,) = await workers.revoke(ref)
        acted_on(worker=agent.uid)
        return await views.one(agent.uid)

    @routes.post("/revoke")
    @needs(Scope.OPERATE)
    async def revoke_all() -> dict[str, Any]:
        await workers.revoke()
        return {"workers": await views.all()}

    @routes.delete("/{ref}")
    @needs(Scope.OPERATE)
    async def remove(ref: str, purge: bool = False) -> dict[str, Any]:
        try:
            agent, folder = await workers.remove(ref, purge=purge)
        finally:
            await (
                parts.sweep()
            )  # its waiting messages become dead letters, and their senders hear of it
        acted_on(worker=agent.uid)
        return {"uid": agent.uid, "nick": agent.nick, "folder": str(folder), "purged": purge}

    return routes


def leftovers_router(parts: Parts) -> APIRouter:
    """The routes for the folders of removed workers."""
    routes = APIRouter(prefix="/leftovers")

    @routes.get("")
    @needs(Scope.OPERATE)
    async def listing() -> dict[str, Any]:
        return _shown(await parts.workers.left())

    @routes.delete("")
    @needs(Scope.OPERATE)
    async def prune() -> dict[str, Any]:
        return _shown(await parts.workers.prune())

    return routes


def _shown(found: list[tuple[Leftover, str]]) -> dict[str, Any]:
    return {
        "leftovers": [
            {"uid": left.uid, "nick": nick, "folder": str(left.folder), "bytes": left.size}
            for left, nick in found
        ]
    }


def events_router(parts: Parts) -> APIRouter:
    """The route for the workers themselves."""
    routes = APIRouter(prefix="/workers")

    async def own(uid: str, me: Caller) -> None:
        if me.method != DOOR or me.uid != uid:
            raise Forbidden("only the worker itself may call this")
        if not await parts.workers.interactive(uid):
            raise Forbidden(
                "this worker may not report events", remedy="give its template a [sidecar] table"
            )

    @routes.post("/{uid}/sdk-events", status_code=202, dependencies=[Depends(own)])
    @needs(Scope.SEND, door=True)
    async def report(uid: str, body: EventsBody) -> dict[str, Any]:
        stored = []
        for event in body.events:
            payload = json.dumps(event, ensure_ascii=False).encode("utf-8", "replace")
            done = await parts.bus.publish(subjects.events(uid), payload)
            stored.append(done.sequence if done else 0)
        return {"stored": stored}

    return routes
