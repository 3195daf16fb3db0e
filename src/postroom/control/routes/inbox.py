"""The caller's inbox: look at it, follow it, acknowledge what is in it (docs/api.md, Inbox)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from postroom.control import sse
from postroom.control.bodies import AckBody
from postroom.control.hot_routes import hot
from postroom.control.in_flight import acted_on
from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.errors import NotFound
from postroom.mail.views import Mail
from postroom.projection.changes import of_agent
from postroom.protocol.limits import LONGEST_WAIT, MAX_PAGE
from postroom.protocol.principal import Scope
from postroom.protocol.receipts import State

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Past = Annotated[int | None, Query(ge=0)]
Sequence = Annotated[int, Query(ge=0)]
Seconds = Annotated[float, Query(ge=0, le=LONGEST_WAIT)]

AUDITED = 16
"""Ids of one acknowledgement that the audit log shows."""


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter()
    inboxes = parts.inboxes

    @routes.get("/inbox")
    @hot
    @needs(Scope.READ)
    async def inbox(
        me: Caller,
        limit: Limit = 50,
        after: Past = None,
        wait: Seconds = 0.0,
        *,
        unread: bool = False,
    ) -> dict[str, Any]:
        if after is None and not wait:
            found = await inboxes.newest(me.uid, unread=unread, limit=limit)
        else:
            found = await inboxes.past(me.uid, after or 0, unread=unread, limit=limit, wait=wait)
        last = found[-1].seq if found else after or 0
        return {"messages": [mail.as_json() for mail in found], "next": last}

    @routes.get("/inbox/stream")
    @hot
    @needs(Scope.READ)
    async def stream(me: Caller, after: Sequence = 0) -> StreamingResponse:
        async def read(past: int) -> list[Mail]:
            return await inboxes.past(me.uid, past, unread=True, limit=sse.PAGE)

        async def events() -> AsyncGenerator[str]:
            found = sse.follow(parts.changes, [of_agent(me.uid)], "mail", after, read)
            with parts.callers.waiting(me.uid):
                async for event in found:
                    yield event

        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(events(), media_type="text/event-stream", headers=headers)

    @routes.post("/inbox/ack")
    @hot
    @needs(Scope.SEND)
    async def acknowledge(body: AckBody, me: Caller) -> dict[str, Any]:
        done = await inboxes.acknowledge(me.uid, body.ids, State(body.state))
        acted_on(about=" ".join(body.ids[:AUDITED]))
        return {"messages": [mail.as_json() for mail in done.mails], "unknown": done.unknown}

    @routes.post("/messages/{message_id}/seen")
    @hot
    @needs(Scope.SEND)
    async def seen(message_id: str, me: Caller) -> dict[str, Any]:
        named = await parts.office.find(message_id, me.only)
        done = await inboxes.acknowledge(me.uid, [named], State.SEEN)
        if not done.mails:
            raise NotFound(f"there is no message {named!r} to you")
        acted_on(message=named)
        return done.mails[0].as_json()

    return routes
