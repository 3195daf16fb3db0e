"""Messages: send, show and wait, chats."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from postroom.control.bodies import MessageBody
from postroom.control.hot_routes import hot
from postroom.control.in_flight import acted_on
from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.protocol.limits import LONGEST_WAIT, MAX_CONTEXT, MAX_DETAIL, MAX_LABEL, MAX_PAGE
from postroom.protocol.principal import Scope
from postroom.protocol.receipts import State

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]
Sequence = Annotated[int, Query(ge=0)]
Seconds = Annotated[float, Query(ge=0, le=LONGEST_WAIT)]
SearchText = Annotated[str, Query(max_length=MAX_DETAIL)]
Thread = Annotated[str, Query(max_length=MAX_CONTEXT)]
With = Annotated[str, Query(alias="with", max_length=MAX_LABEL)]


def router(parts: Parts) -> APIRouter:
    """The routes."""
    routes = APIRouter()
    office = parts.office

    @routes.post("/messages", status_code=201)
    @hot
    @needs(Scope.SEND)
    async def send(body: MessageBody, me: Caller) -> dict[str, Any]:
        mail = await office.send(
            me.uid,
            body.to,
            body.content,
            expects_reply=body.expects_reply,
            key=body.key,
            reply_to=await office.find(body.reply_to, me.only),
            expires_in=body.expires_in or 0.0,
            folded=False,
        )
        acted_on(message=mail.id)
        return mail.as_json()

    @routes.get("/messages")
    @needs(Scope.READ)
    async def search(
        me: Caller,
        text: SearchText = "",
        thread: Thread = "",
        other: With = "",
        limit: Limit = 50,
        before: Sequence = 0,
    ) -> dict[str, Any]:
        found = await office.search(
            text,
            thread=thread,
            other=await parts.uid_of(other),
            seer=me.only,
            limit=limit,
            before=before,
        )
        following = found[-1].seq if len(found) == limit else None
        return {"messages": [mail.as_json() for mail in found], "next": following}

    @routes.get("/messages/{message_id}")
    @hot
    @needs(Scope.READ)
    async def show(
        message_id: str,
        me: Caller,
        wait: Literal["", "accepted", "delivered", "seen", "answered"] = "",
        timeout: Seconds = 30.0,
    ) -> dict[str, Any]:
        message_id = await office.find(message_id, me.only)
        if not wait:
            return (await office.get(message_id, me.only)).as_json()
        return (await office.wait(message_id, State(wait), timeout, me.only)).as_json()

    @routes.get("/chats/{ref}/messages")
    @needs(Scope.READ)
    async def chat(ref: str, me: Caller, limit: Limit = 50, before: Sequence = 0) -> dict[str, Any]:
        other = await parts.directory.resolve(ref)
        found = await office.chat(me.uid, other.uid, limit=limit, before=before)
        return {"messages": [mail.as_json() for mail in found]}

    return routes
