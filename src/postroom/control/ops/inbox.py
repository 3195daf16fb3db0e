"""The caller's inbox: look at it, follow it, acknowledge what is in it (docs/api.md, Inbox)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.responses import StreamingResponse

from postroom.control.bodies import AckBody, ArchiveBody
from postroom.control.in_flight import acted_on
from postroom.control.ops.table import STORING, Operations
from postroom.control.parameters import After, Limit, MessageRef, Past, Seconds
from postroom.control.parts import Parts
from postroom.errors import Conflict, NotFound
from postroom.feed.events import streamed
from postroom.feed.records import InboxFeed
from postroom.protocol import answers, shapes
from postroom.protocol.limits import MAX_HOW
from postroom.protocol.principal import Principal, Scope
from postroom.protocol.receipts import State
from postroom_a2a.text import one_line

Unread = Annotated[bool, Field(description="Only what was not read.")]

Archived = Annotated[bool, Field(description="Only what was put away.")]

AUDITED = 16
"""Ids of one acknowledgement that the audit log shows."""


operations = Operations()


@operations.get("/v1/inbox", Scope.READ, strangers=True)
async def list_(
    parts: Parts,
    me: Principal,
    limit: Limit = 50,
    after: Past = None,
    wait: Seconds = 0.0,
    *,
    unread: Unread = False,
    archived: Archived = False,
) -> answers.Inbox:
    """Read the messages to the caller.

    Without `after` and `wait` the newest that are not put away, or with `archived` those that are. Else those past
    `after`; if there are none the answer waits for up to `wait` seconds.
    """
    if after is None and not wait:
        found = await parts.inboxes.newest(me.uid, unread=unread, archived=archived, limit=limit)
    else:
        found = await parts.inboxes.past(me.uid, after or 0, unread=unread, limit=limit, wait=wait)
    last = found[-1].seq if found else after or 0
    return {"messages": [mail.as_json() for mail in found], "next": last}


@operations.get("/v1/inbox/stream", Scope.READ, events={"mail": shapes.Mail}, strangers=True)
async def stream(parts: Parts, me: Principal, after: After = 0) -> StreamingResponse:
    """Follow the messages to the caller.

    `id:` is the sequence to come back with.
    """
    feed = InboxFeed(parts.changes, parts.inboxes, parts.callers, me.uid)
    return streamed(feed, after)


@operations.post("/v1/inbox/ack", Scope.SEND, fails=(*STORING,), strangers=True)
async def acknowledge(parts: Parts, body: AckBody, me: Principal) -> answers.Acknowledged:
    """Say that messages were delivered or seen.

    Their senders learn it, and `how` they were delivered. Ids that name no message to the caller are in `unknown`.
    """
    how = one_line(body.how, MAX_HOW)
    done = await parts.inboxes.acknowledge(me.uid, body.ids, State(body.state), how)
    acted_on(about=" ".join(body.ids[:AUDITED]))
    return {"messages": [mail.as_json() for mail in done.mails], "unknown": list(done.unknown)}


@operations.post("/v1/inbox/archive", Scope.SEND, strangers=True)
async def archive(parts: Parts, body: ArchiveBody, me: Principal) -> answers.Archived:
    """Put messages away, out of the list of the inbox, or take them out again.

    With `read` all that were read. They stay in search and threads, no sender learns it, and no state changes.
    """
    if body.read:
        return {"count": await parts.inboxes.archive_read(me.uid), "unknown": []}
    count, unknown = await parts.inboxes.archive(me.uid, body.ids, archived=body.archived)
    acted_on(about=" ".join(body.ids[:AUDITED]))
    return {"count": count, "unknown": unknown}


@operations.post(
    "/v1/messages/{message_id}/seen",
    Scope.SEND,
    fails=(NotFound, Conflict, *STORING),
    strangers=True,
)
async def seen(parts: Parts, message_id: MessageRef, me: Principal) -> shapes.Mail:
    """Say that a message to the caller was read."""
    named = await parts.office.find(message_id, me.only)
    done = await parts.inboxes.acknowledge(me.uid, [named], State.SEEN)
    if not done.mails:
        raise NotFound(f"there is no message {named!r} to you")
    acted_on(message=named)
    return done.mails[0].as_json()
