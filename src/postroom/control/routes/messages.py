"""Messages: send, show and wait, chats."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query

from postroom.control.bodies import MessageBody
from postroom.control.described import STORING, fails
from postroom.control.hot_routes import hot
from postroom.control.in_flight import acted_on
from postroom.control.parameters import (
    AgentRef,
    Before,
    Limit,
    MessageRef,
    SearchText,
    Seconds,
    next_page,
)
from postroom.control.parts import Parts
from postroom.control.principals import Caller, needs
from postroom.control.routing import Routes
from postroom.errors import Conflict, ContentNotTaken, NotFound
from postroom.protocol import answers, shapes
from postroom.protocol.limits import MAX_CONTEXT, MAX_LABEL
from postroom.protocol.principal import Scope
from postroom.protocol.receipts import State

Until = Annotated[
    Literal["", "accepted", "delivered", "seen", "answered"],
    Query(description="The state to wait for."),
]
Thread = Annotated[str, Query(max_length=MAX_CONTEXT, description="Only what is of this thread.")]
With = Annotated[
    str,
    Query(alias="with", max_length=MAX_LABEL, description="Only what is from or to this agent."),
]


def router(parts: Parts) -> Routes:
    """The routes."""
    routes = Routes()
    office = parts.office

    @routes.post("/messages", status_code=201)
    @hot
    @needs(Scope.SEND)
    @fails(NotFound, Conflict, ContentNotTaken, *STORING)
    async def send(body: MessageBody, me: Caller) -> shapes.Mail:
        """Send a message to an agent.

        201 says that it is on disk. It has `text`, `parts` (A2A 1.0), or both, the text first. A send with a `key` can
        be repeated: the same key toward the same recipient is the same message.
        """
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
    @fails(NotFound)
    async def search(
        me: Caller,
        text: SearchText = "",
        thread: Thread = "",
        other: With = "",
        limit: Limit = 50,
        before: Before = 0,
    ) -> answers.Mails:
        """Search the messages that the caller may see, the newest first.

        `text` is in their text or subject, `thread` is theirs, and `with` is their sender or recipient.
        """
        found = await office.search(
            text,
            thread=thread,
            other=await parts.uid_of(other),
            seer=me.only,
            limit=limit,
            before=before,
        )
        older = next_page(found, limit, lambda mail: mail.seq)
        return {"messages": [mail.as_json() for mail in found], "next": older}

    @routes.get("/messages/{message_id}")
    @hot
    @needs(Scope.READ)
    @fails(NotFound, Conflict)
    async def show(
        message_id: MessageRef,
        me: Caller,
        wait: Until = "",
        timeout: Seconds = 30.0,
    ) -> shapes.Mail:
        """Show a message, at once or when it has come so far.

        With `wait` it answers when the message has reached that state or a later one, after `timeout` seconds in any
        case; the wait ends with its caller.
        """
        message_id = await office.find(message_id, me.only)
        if not wait:
            return (await office.get(message_id, me.only)).as_json()
        return (await office.wait(message_id, State(wait), timeout, me.only)).as_json()

    @routes.get("/chats/{ref}/messages")
    @needs(Scope.READ)
    @fails(NotFound)
    async def chat(
        ref: AgentRef, me: Caller, limit: Limit = 50, before: Before = 0
    ) -> answers.Mails:
        """Read the messages between the caller and an agent, the oldest first."""
        other = await parts.directory.resolve(ref)
        found = await office.chat(me.uid, other.uid, limit=limit, before=before)
        older = next_page(found[::-1], limit, lambda mail: mail.seq)
        return {"messages": [mail.as_json() for mail in found], "next": older}

    return routes
