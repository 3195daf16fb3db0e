"""Events of a worker's agent: its sidecar reports them, people read them."""

from __future__ import annotations

import secrets
from contextlib import aclosing
from typing import Annotated

from pydantic import Field

from postroom.control.bodies import EventsBody
from postroom.control.ops.table import STORING, Operations
from postroom.control.parameters import MAX_SEQUENCE, AfterId, AgentRef, Limit, next_page
from postroom.control.parts import Parts
from postroom.control.principals import itself
from postroom.control.websockets import Socket
from postroom.errors import Forbidden, MessageTooLarge, NotFound
from postroom.events.service import shown
from postroom.feed.records import FROM_NOW, WorkerFeed
from postroom.projection.changes import Signal
from postroom.projection.tail import tail
from postroom.protocol import answers
from postroom.protocol.principal import Principal, Scope
from postroom.protocol.sockets import Code

PAGE = 100
"""Events of one answer where the caller names no limit."""

Newest = Annotated[bool, Field(description="The last events, and nothing past a cursor.")]

BeforeId = Annotated[
    int,
    Field(
        ge=0,
        le=MAX_SEQUENCE,
        description="With `newest` only events before the one with this id; 0 for all.",
    ),
]

LiveAfterId = Annotated[
    int,
    Field(ge=FROM_NOW, le=MAX_SEQUENCE, description="The same; -1 for those from now on."),
]


operations = Operations()


async def _check_own(parts: Parts, uid: str, me: Principal) -> None:
    itself(me, uid)
    if not await parts.workers.interactive(uid):
        raise Forbidden(
            "this worker may not report events", remedy="give its template a [sidecar] table"
        )


@operations.post(
    "/v1/workers/{uid}/sdk-events",
    Scope.SEND,
    status=202,
    door=True,
    fails=(*STORING, MessageTooLarge),
)
async def report(parts: Parts, uid: AgentRef, body: EventsBody, me: Principal) -> answers.Reported:
    """Report events of a worker.

    Only the worker itself may, through its own door, and only if its template has a `[sidecar]` table. With `run`
    and `first` a report may be repeated: the same number is the same event, and counts once.
    """
    await _check_own(parts, uid, me)
    # Without a run they would count as the control plane's own, such as a person's decision.
    run, first = (body.run, body.first) if body.run else (secrets.token_hex(16), 1)
    done = await parts.events.append(uid, body.events, run, first)
    return {"stored": list(done.ids), "next": done.next}


@operations.get("/v1/workers/{ref}/sdk-events", Scope.OPERATE, fails=(NotFound,))
async def past(
    parts: Parts,
    ref: AgentRef,
    after_id: AfterId = 0,
    limit: Limit = PAGE,
    before_id: BeforeId = 0,
    *,
    newest: Newest = False,
) -> answers.WorkerEvents:
    """List what a worker's agent did, the oldest first.

    From `after_id` on, or with `newest` the last ones, of those before `before_id` if it is given.
    """
    if newest:
        last = await parts.events.newest(await parts.uid_of(ref), limit, before_id)
        return {"events": [shown(row) for row in last], "next": None}
    found = await parts.events.past(await parts.uid_of(ref), after_id, limit)
    last = next_page(found, limit, lambda row: row.id)
    return {"events": [shown(row) for row in found], "next": last}


@operations.socket("/v1/workers/{ref}/sdk-events/stream", Scope.OPERATE, fails=(NotFound,))
async def stream(parts: Parts, socket: Socket, ref: AgentRef, after_id: LiveAfterId = 0) -> None:
    """Follow what a worker's agent does: those past `after_id`, then each as it comes.

    One JSON text message is one event. A client that was closed goes on from the last id that it has.
    """
    worker = await parts.uid_of(ref)
    await socket.accept()
    async with aclosing(tail(WorkerFeed(parts.changes, parts.events, worker), after_id)) as found:
        async for event in found:
            if event is not Signal.QUIET:
                await socket.send_text(event.text)
    await socket.close(Code.GOING_AWAY, "the post room ends")
