"""The caller's inbox: look at it, follow it, acknowledge what is in it (docs/api.md, Inbox)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import Query
from fastapi.responses import StreamingResponse

from postroom.control import sse
from postroom.control.bodies import AckBody
from postroom.control.described import STORING, fails, streams
from postroom.control.hot_routes import hot
from postroom.control.in_flight import acted_on
from postroom.control.parameters import After, Limit, MessageRef, Past, Seconds
from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.control.routing import Routes
from postroom.errors import Conflict, NotFound
from postroom.mail.views import Mail
from postroom.projection.changes import of_agent
from postroom.protocol import answers, shapes
from postroom.protocol.principal import Scope
from postroom.protocol.receipts import State

Unread = Annotated[bool, Query(description="Only what was not read.")]

AUDITED = 16
"""Ids of one acknowledgement that the audit log shows."""


def router(parts: Parts) -> Routes:
    """The routes."""
    routes = Routes()
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
        unread: Unread = False,
    ) -> answers.Inbox:
        """Read the messages to the caller.

        Without `after` and `wait` the newest; else those past `after`, and if there are none the answer waits for up to
        `wait` seconds.
        """
        if after is None and not wait:
            found = await inboxes.newest(me.uid, unread=unread, limit=limit)
        else:
            found = await inboxes.past(me.uid, after or 0, unread=unread, limit=limit, wait=wait)
        last = found[-1].seq if found else after or 0
        return {"messages": [mail.as_json() for mail in found], "next": last}

    @routes.get("/inbox/stream")
    @hot
    @needs(Scope.READ)
    @streams(mail=shapes.Mail)
    async def stream(me: Caller, after: After = 0) -> StreamingResponse:
        """Follow the messages to the caller.

        `id:` is the sequence to come back with.
        """

        async def read(past: int) -> list[Mail]:
            return await inboxes.past(me.uid, past, unread=True, limit=sse.PAGE, follows=True)

        async def events() -> AsyncGenerator[str]:
            found = sse.follow(parts.changes, [of_agent(me.uid)], "mail", after, read)
            with parts.callers.waiting(me.uid):
                async for event in found:
                    yield event

        headers = {"Cache-Control": "no-store"}
        return sse.response(events(), headers)

    @routes.post("/inbox/ack")
    @hot
    @needs(Scope.SEND)
    @fails(*STORING)
    async def acknowledge(body: AckBody, me: Caller) -> answers.Acknowledged:
        """Say that messages were delivered or seen.

        Their senders learn it. Ids that name no message to the caller are in `unknown`.
        """
        done = await inboxes.acknowledge(me.uid, body.ids, State(body.state))
        acted_on(about=" ".join(body.ids[:AUDITED]))
        return {"messages": [mail.as_json() for mail in done.mails], "unknown": list(done.unknown)}

    @routes.post("/messages/{message_id}/seen")
    @hot
    @needs(Scope.SEND)
    @fails(NotFound, Conflict, *STORING)
    async def seen(message_id: MessageRef, me: Caller) -> shapes.Mail:
        """Say that a message to the caller was read."""
        named = await parts.office.find(message_id, me.only)
        done = await inboxes.acknowledge(me.uid, [named], State.SEEN)
        if not done.mails:
            raise NotFound(f"there is no message {named!r} to you")
        acted_on(message=named)
        return done.mails[0].as_json()

    return routes
