"""The operator's messages: send, wait, read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from postroom.control.bodies import MessageBody
from postroom.control.hot_routes import hot
from postroom.control.parts import Parts
from postroom.protocol.limits import LONGEST_WAIT, MAX_PAGE
from postroom.protocol.receipts import State

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Sequence = Annotated[int, Query(ge=0)]
Seconds = Annotated[float, Query(ge=0, le=LONGEST_WAIT)]


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter()
    office, me = parts.office, parts.owner.uid

    @routes.post("/messages", status_code=201)
    @hot
    async def send(body: MessageBody) -> dict[str, Any]:
        mail = await office.send(
            me,
            body.to,
            body.content,
            expects_reply=body.expects_reply,
            key=body.key,
            reply_to=await office.find(body.reply_to),
            expires_in=body.expires_in or 0.0,
            folded=False,
        )
        return mail.as_json()

    @routes.get("/messages/{message_id}")
    @hot
    async def show(
        message_id: str,
        wait: Literal["", "accepted", "delivered", "seen", "answered"] = "",
        timeout: Seconds = 30.0,
    ) -> dict[str, Any]:
        message_id = await office.find(message_id)
        if not wait:
            return (await office.get(message_id)).as_json()
        return (await office.wait(message_id, State(wait), timeout)).as_json()

    @routes.post("/messages/{message_id}/seen")
    @hot
    async def seen(message_id: str) -> dict[str, Any]:
        return (await office.mark_seen(me, await office.find(message_id))).as_json()

    @routes.get("/inbox")
    @hot
    async def inbox(limit: Limit = 50, *, unread: bool = False) -> dict[str, Any]:
        found = await office.inbox(me, unread=unread, limit=limit)
        return {"messages": [mail.as_json() for mail in found]}

    @routes.get("/chats/{ref}/messages")
    async def chat(ref: str, limit: Limit = 50, before: Sequence = 0) -> dict[str, Any]:
        other = await parts.directory.resolve(ref)
        found = await office.chat(me, other.uid, limit=limit, before=before)
        return {"messages": [mail.as_json() for mail in found]}

    return routes
