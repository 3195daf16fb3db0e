"""Events of a worker's agent: its sidecar reports them, people read them."""

from __future__ import annotations

import secrets
from contextlib import aclosing
from typing import Annotated

from fastapi import Query

from postroom.control.bodies import EventsBody
from postroom.control.described import STORING, fails
from postroom.control.hot_routes import hot
from postroom.control.parameters import MAX_SEQUENCE, AfterId, AgentRef, Limit, next_page
from postroom.control.parts import Parts
from postroom.control.principals import Caller, itself, needs
from postroom.control.routing import Routes
from postroom.control.websockets import Socket, SocketRoutes
from postroom.errors import Forbidden, MessageTooLarge, NotFound
from postroom.events.following import FROM_NOW, follow
from postroom.events.service import shown
from postroom.protocol import answers
from postroom.protocol.principal import Scope
from postroom.protocol.sockets import Code
from postroom_a2a import strict_json

PAGE = 100
"""Events of one answer where the caller names no limit."""

Newest = Annotated[bool, Query(description="The last events, and nothing past a cursor.")]

BeforeId = Annotated[
    int,
    Query(
        ge=0,
        le=MAX_SEQUENCE,
        description="With `newest` only events before the one with this id; 0 for all.",
    ),
]

LiveAfterId = Annotated[
    int,
    Query(ge=FROM_NOW, le=MAX_SEQUENCE, description="The same; -1 for those from now on."),
]


def router(parts: Parts) -> Routes:
    """The routes below `/workers/{ref}/sdk-events`."""
    routes = Routes(prefix="/workers")
    events, workers = parts.events, parts.workers

    async def check_own(uid: str, me: Caller) -> None:
        itself(me, uid)
        if not await workers.interactive(uid):
            raise Forbidden(
                "this worker may not report events", remedy="give its template a [sidecar] table"
            )

    @routes.post("/{uid}/sdk-events", status_code=202)
    @hot
    @needs(Scope.SEND, door=True)
    @fails(*STORING, MessageTooLarge)
    async def report(uid: AgentRef, body: EventsBody, me: Caller) -> answers.Reported:
        """Report events of a worker.

        Only the worker itself may, through its own door, and only if its template has a `[sidecar]` table. With `run`
        and `first` a report may be repeated: the same number is the same event, and counts once.
        """
        await check_own(uid, me)
        # Without a run they would count as the control plane's own, such as a person's decision.
        run, first = (body.run, body.first) if body.run else (secrets.token_hex(16), 1)
        done = await events.append(uid, body.events, run, first)
        return {"stored": list(done.ids), "next": done.next}

    @routes.get("/{ref}/sdk-events")
    @needs(Scope.OPERATE)
    @fails(NotFound)
    async def past(
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
            last = await events.newest(await parts.uid_of(ref), limit, before_id)
            return {"events": [shown(row) for row in last], "next": None}
        found = await events.past(await parts.uid_of(ref), after_id, limit)
        last = next_page(found, limit, lambda row: row.id)
        return {"events": [shown(row) for row in found], "next": last}

    return routes


def sockets(parts: Parts) -> SocketRoutes:
    """The WebSockets below `/workers/{ref}/sdk-events`."""
    routes = SocketRoutes()

    @routes.socket("/workers/{ref}/sdk-events/stream")
    @needs(Scope.OPERATE)
    @fails(NotFound)
    async def stream(socket: Socket, ref: AgentRef, after_id: LiveAfterId = 0) -> None:
        """Follow what a worker's agent does: those past `after_id`, then each as it comes.

        One JSON text message is one event. A client that was closed goes on from the last id that it has.
        """
        worker = await parts.uid_of(ref)
        await socket.accept()
        async with aclosing(follow(parts.events, parts.changes, worker, after_id)) as found:
            async for rows in found:
                for row in rows:
                    await socket.send_text(strict_json.dumps(shown(row)).decode())
        await socket.close(Code.GOING_AWAY, "the post room ends")

    return routes
