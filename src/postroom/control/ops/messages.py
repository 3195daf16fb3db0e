"""Messages: send, show and wait, chats."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from postroom.control.bodies import MessageBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.table import STORING, As, Naming, Operations
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
from postroom.errors import Conflict, ContentNotTaken, NotFound
from postroom.protocol import answers, shapes
from postroom.protocol.limits import MAX_CONTEXT, MAX_LABEL
from postroom.protocol.principal import Principal, Scope
from postroom.protocol.receipts import State

Until = Annotated[
    Literal["", "accepted", "delivered", "seen", "answered"],
    Field(description="The state to wait for."),
]
Thread = Annotated[str, Field(max_length=MAX_CONTEXT, description="Only what is of this thread.")]
With = Annotated[
    str,
    Field(max_length=MAX_LABEL, description="Only what is from or to this agent."),
    As("with"),
    Naming(),
]


operations = Operations()


@operations.post(
    "/v1/messages",
    Scope.SEND,
    status=201,
    fails=(NotFound, Conflict, ContentNotTaken, *STORING),
    strangers=True,
)
async def send(parts: Parts, body: MessageBody, me: Principal) -> shapes.Mail:
    """Send a message to an agent.

    201 says that it is on disk. It has `text`, `parts` (A2A 1.0), or both, the text first. A send with a `key` can
    be repeated: the same key toward the same recipient is the same message. `note` says what its sender should know
    of a recipient that does not get it by itself.
    """
    mail = await parts.office.send(
        me.uid,
        body.to,
        body.content,
        expects_reply=body.expects_reply,
        key=body.key,
        reply_to=await parts.office.find(body.reply_to, me.only),
        expires_in=body.expires_in or 0.0,
        folded=False,
    )
    acted_on(message=mail.id)
    return replace(mail, note=parts.sessions.told(mail.recipient)).as_json()


@operations.get("/v1/messages", Scope.READ, fails=(NotFound,), strangers=True)
async def search(
    parts: Parts,
    me: Principal,
    text: SearchText = "",
    thread: Thread = "",
    other: With = "",
    limit: Limit = 50,
    before: Before = 0,
) -> answers.Mails:
    """Search the messages that the caller may see, the newest first.

    `text` is in their text or subject, `thread` is theirs, and `with` is their sender or recipient.
    """
    found = await parts.office.search(
        text,
        thread=thread,
        other=await parts.uid_of(other),
        seer=me.only,
        limit=limit,
        before=before,
    )
    older = next_page(found, limit, lambda mail: mail.seq)
    return {"messages": [mail.as_json() for mail in found], "next": older}


@operations.get("/v1/threads", Scope.READ, strangers=True)
async def threads(
    parts: Parts, me: Principal, limit: Limit = 50, before: Before = 0
) -> answers.Threads:
    """List the caller's threads, the one with the newest message first.

    A message is of a thread if its sender named one, or answered a message of it. The messages of one are found by
    its id (`GET /v1/messages`).
    """
    found = await parts.office.threads(me.uid, limit=limit, before=before)
    older = next_page(found, limit, lambda thread: thread.seq)
    return {"threads": [thread.as_json() for thread in found], "next": older}


@operations.get("/v1/messages/{message_id}", Scope.READ, fails=(NotFound, Conflict), strangers=True)
async def show(
    parts: Parts,
    message_id: MessageRef,
    me: Principal,
    wait: Until = "",
    timeout: Seconds = 30.0,
) -> shapes.Mail:
    """Show a message, at once or when it has come so far.

    With `wait` it answers when the message has reached that state or a later one, after `timeout` seconds in any
    case; the wait ends with its caller.
    """
    message_id = await parts.office.find(message_id, me.only)
    if not wait:
        return (await parts.office.get(message_id, me.only)).as_json()
    return (await parts.office.wait(message_id, State(wait), timeout, me.only)).as_json()


@operations.get("/v1/chats/{ref}/messages", Scope.READ, fails=(NotFound,), strangers=True)
async def chat(
    parts: Parts, ref: AgentRef, me: Principal, limit: Limit = 50, before: Before = 0
) -> answers.Mails:
    """Read the messages between the caller and an agent, the oldest first."""
    other = await parts.directory.known(ref)
    found = await parts.office.chat(me.uid, other.uid, limit=limit, before=before)
    older = next_page(found[::-1], limit, lambda mail: mail.seq)
    return {"messages": [mail.as_json() for mail in found], "next": older}
