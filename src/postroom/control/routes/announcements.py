"""Announcements: of who calls, and those on an agent's outbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from postroom.control import sse
from postroom.control.bodies import AnnouncementBody
from postroom.control.hot_routes import hot
from postroom.control.in_flight import acted_on
from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.mail.outbox import Announcement
from postroom.projection.changes import of_outbox
from postroom.protocol.limits import MAX_PAGE
from postroom.protocol.principal import Scope

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Before = Annotated[int, Query(ge=0)]
After = Annotated[int | None, Query(ge=0)]


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter()
    outbox = parts.outbox

    @routes.post("/announcements", status_code=201)
    @needs(Scope.SEND)
    async def announce(body: AnnouncementBody, me: Caller) -> Mapping[str, Any]:
        said = await outbox.announce(me.uid, body.content, key=body.key)
        acted_on(message=said.id)
        return said.as_json()

    @routes.get("/agents/{ref}/outbox")
    @needs(Scope.READ)
    async def listing(
        ref: str, limit: Limit = 50, before: Before = 0, after: After = None
    ) -> dict[str, Any]:
        sender = (await parts.directory.resolve(ref)).uid
        found = await outbox.of(sender, limit=limit, before=before, after=after)
        full = len(found) == limit
        following = found[0 if after is None else -1].seq if full else None
        return {"announcements": [one.as_json() for one in found], "next": following}

    @routes.get("/agents/{ref}/outbox/stream")
    @hot
    @needs(Scope.READ)
    async def stream(ref: str, after: Before = 0) -> StreamingResponse:
        events = _events(parts, (await parts.directory.resolve(ref)).uid, after)
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    return routes


def _events(parts: Parts, sender: str, after: int) -> AsyncIterator[str]:
    begun = after > 0

    async def read(past: int) -> list[Announcement]:
        nonlocal begun
        if begun:
            return await parts.outbox.of(sender, limit=sse.PAGE, after=past)
        begun = True
        return await parts.outbox.of(sender, limit=sse.PAGE)

    return sse.follow(parts.changes, [of_outbox(sender)], "announcement", after, read)
