"""The connection: messages out and in, and a server again when one is lost (docs/binding.md, Connections)."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from postroom_a2a.errors import (
    BusDisconnected,
    Forbidden,
    InvalidInput,
    MessageTooLarge,
    PostroomError,
    Refused,
    RequestTimeout,
    Unauthorized,
)
from postroom_a2a.nats.commands import is_subject, publish_line
from postroom_a2a.nats.frame import WireFrame, write_headers
from postroom_a2a.nats.options import Options, Server
from postroom_a2a.nats.overlap import Overlap
from postroom_a2a.nats.port import Frame
from postroom_a2a.nats.server_errors import Denied
from postroom_a2a.nats.servers import Pool
from postroom_a2a.nats.session import Session, dial
from postroom_a2a.nats.subscriptions import Reader, Watchers, WireSubscription, guarded

STEP = 2.0
"""Seconds that a server has for each step of a renewal; then the former connection is cut."""

SPREAD = 0.2
"""Seconds in which the servers of a cluster learn of each other's subscriptions; no event tells when they have."""

TURN = 256 * 1024
"""Bytes that are written at once at the latest; usually it is what one turn of the loop published."""

_log = logging.getLogger(__name__)


class WireConnection:
    """An open connection; it keeps the port `Connection`. Made by `connect`.

    When its server goes away it connects again, to that one or another, for ever; subscriptions live on, and what is
    published meanwhile is sent then.

    Attributes:
        changed: done when the connection came back, or is over for good; then another takes its place.
        reconnects: times that it connected again, so that what was under way may be lost.
        reconnected_at: when, by the loop's clock.
        dropped: messages that came and were dropped, since too many lay unread.
    """

    def __init__(self, pool: Pool, options: Options) -> None:
        self.max_payload = 1024 * 1024
        self.reconnects = 0
        self.reconnected_at = float("-inf")
        self.sent = 0
        self.received = 0
        self.dropped = 0
        self._pool = pool
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._session: Session | None = None
        self._write: Callable[[bytes], None] | None = None
        self._routes: dict[bytes, WireSubscription] = {}
        self._sids = 0
        self._stem = f"{options.inbox_prefix}.{secrets.token_hex(11)}"
        self._inboxes = 0
        self._out: list[bytes] = []
        self._held = 0
        self._due = False
        self._full = False
        self._room: asyncio.Future[None] | None = None
        self._denials = Watchers()
        self._delivering: dict[str, list[asyncio.Future[None]]] = {}
        self._closed = False
        self._why: PostroomError | None = None
        self._server: Server | None = None
        self._info: dict[str, Any] = {}
        self._since = 0.0
        self._reconnecting: asyncio.Task[None] | None = None
        self._renewing = asyncio.Lock()
        self._replacing = False
        self._both: tuple[Session, ...] = ()
        self._overlapping: asyncio.Future[None] | None = None
        self._holding: asyncio.Future[None] | None = None
        self.changed: asyncio.Future[None] = self._loop.create_future()

    # ── state ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_closed(self) -> bool:
        """Whether it is over for good."""
        return self._closed

    @property
    def is_connected(self) -> bool:
        """Whether it is up now."""
        return self._session is not None

    @property
    def lost(self) -> PostroomError | None:
        """Why it is over for good, None while it is not; another object each time, since it may be raised."""
        if not self._closed:
            return None
        if self._why is None:
            return BusDisconnected("the connection was closed")
        return type(self._why)(self._why.message, remedy=self._why.remedy)

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until it is up, for `timeout` seconds or for ever.

        Raises:
            BusDisconnected, Unauthorized: not in time, or never again.
        """
        until = None if timeout is None else self._loop.time() + timeout
        while self._session is None:
            if self._closed:
                raise self.lost or BusDisconnected("the connection was closed")
            left = None if until is None else max(0.0, until - self._loop.time())
            await asyncio.wait({self.changed}, timeout=left)
            if self._session is None and left == 0.0:
                raise BusDisconnected(
                    "there is no connection to a NATS server",
                    remedy="wait until the server is back, then do it again",
                )

    def reconnect(self) -> None:
        """Leave a server that seems to hang, and connect again."""
        if self._session is not None:
            self._session.abort(BusDisconnected("the NATS server was left"))

    async def __aenter__(self) -> Self:
        """Itself; it is open."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    def new_inbox(self) -> str:
        """A subject that nobody else has."""
        self._inboxes += 1
        return f"{self._stem}{self._inboxes:x}"

    # ── out ──────────────────────────────────────────────────────────────────────────────────────────

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Send with the end of this turn of the loop; waits only while too much is unsent.

        Raises:
            MessageTooLarge: over the server's limit; nothing was sent.
            InvalidInput: the subject or a header is malformed.
            BusDisconnected: it is closed, or too much waits for it to come back.
        """
        size = len(payload)
        if headers:
            block = write_headers(headers)
            size += len(block)
        else:
            block = b""
        if size > self.max_payload:
            raise MessageTooLarge(
                f"the message has {size} bytes, the server's limit is {self.max_payload}"
            )
        line = publish_line(subject, reply, len(block), size)
        if self._full or self._write is None or self._held > TURN:
            await self._make_room(size)
        if block:
            self._out += (line, block, payload, b"\r\n")
        else:
            self._out += (line, payload, b"\r\n")
        self._held += size + len(line) + 2
        self.sent += 1
        if not self._due:
            self._due = True
            self._loop.call_soon(self._write_out)

    async def _make_room(self, size: int) -> None:
        """Wait until the transport takes more.

        Raises:
            BusDisconnected: it is closed, or too much waits for it to come back.
        """
        if self._held > TURN and self._write is not None:
            self._write_out()
            await asyncio.sleep(0)  # a publisher that never waits must not shut everybody else out
        while self._full and self._write is not None:
            if self._room is None or self._room.done():
                self._room = self._loop.create_future()
            await asyncio.shield(self._room)
        while self._holding is not None and self._held + size > self._options.pending:
            await asyncio.shield(self._holding)
        if self._closed:
            raise self.lost or BusDisconnected("the connection was closed")
        if self._write is None and self._held + size > self._options.pending:
            raise BusDisconnected(
                f"there is no NATS server, and {self._held} bytes wait for one already"
            )

    def _write_out(self) -> None:
        self._due = False
        if self._out and self._write is not None:
            data = b"".join(self._out)
            self._out.clear()
            self._held = 0
            self._write(data)

    async def flush(self, timeout: float = 10) -> None:
        """Return when the server has worked through everything that was sent so far.

        Raises:
            BusDisconnected: the connection was lost; what was sent may be lost as well.
        """
        while self._holding is not None:
            await asyncio.shield(self._holding)
        session = self._session
        if session is None:
            raise self.lost or BusDisconnected("there is no connection to a NATS server")
        self._write_out()
        pong = session.ping()
        await asyncio.wait({pong}, timeout=timeout)
        if not pong.done():
            raise RequestTimeout("the NATS server does not answer")
        pong.result()

    async def settle(self, timeout: float = 10) -> None:
        """As `flush`, but a connection that breaks meanwhile is waited for, and asked again.

        Raises:
            BusDisconnected, Unauthorized: there is no connection, or never again.
        """
        until = self._loop.time() + timeout
        while True:
            await self.ready(max(0.0, until - self._loop.time()))
            try:
                return await self.flush(max(0.0, until - self._loop.time()))
            except BusDisconnected:
                continue

    async def deliver(
        self,
        subject: str,
        payload: bytes,
        reply: str = "",
        headers: dict[str, str] | None = None,
        *,
        timeout: float = 10,
    ) -> None:
        """Publish, and return when the server has taken it.

        Raises:
            Forbidden: this identity may not publish there.
            As `publish` and `settle`.
        """
        denied: asyncio.Future[None] = self._loop.create_future()
        self._delivering.setdefault(subject, []).append(denied)
        try:
            await self.publish(subject, payload, reply, headers)
            await self.settle(timeout)
            if denied.done():
                denied.result()
        finally:
            waiting = self._delivering[subject]
            waiting.remove(denied)
            if not waiting:
                del self._delivering[subject]
            if not denied.cancel():
                denied.exception()  # seen, also where something else was raised

    # ── in ───────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(
        self,
        subject: str,
        queue: str = "",
        cb: Callable[[Frame], Awaitable[None]] | None = None,
    ) -> WireSubscription:
        """Receive what is published from now on; `cb` is called for one frame after the other, in a task of its own.

        Raises:
            InvalidInput: the subject or the queue group is malformed, or there is no `cb`.
        """
        if cb is None:
            raise InvalidInput("a subscription needs a function that takes its frames")
        subscription = self._open(subject, queue)
        options = self._options
        reader = Reader(self, subject, cb, options.unread, options.unread_size)
        subscription.reader, subscription.take = reader, reader.put
        self._announce(subscription)
        return subscription

    async def subscribe_now(
        self, subject: str, arrived: Callable[[Frame], None], queue: str = ""
    ) -> WireSubscription:
        """As `subscribe`, for a function that never waits: it is called as the frame is read, in no task.

        It must be quick, since nothing else is read meanwhile. What it raises is reported.

        Raises:
            As `subscribe`.
        """
        subscription = self._open(subject, queue)
        subscription.take = guarded(self, arrived)
        self._announce(subscription)
        return subscription

    def _open(self, subject: str, queue: str) -> WireSubscription:
        if self._closed:
            raise self.lost or BusDisconnected("the connection was closed")
        if not is_subject(subject) or (queue and not is_subject(queue)):
            raise InvalidInput(f"{subject!r} cannot be subscribed")
        self._sids += 1
        return WireSubscription(self, self._sids, subject, queue)

    def _announce(self, subscription: WireSubscription) -> None:
        self._routes[b"%d" % subscription.sid] = subscription
        self._tell(subscription.line)

    def _tell(self, line: bytes) -> None:
        """Write a line about a subscription to every session there is; one that comes later is told all of them."""
        self._write_out()
        for session in self._both:
            session.transport.write(line)
        if self._write is not None and not self._both:
            self._write(line)

    async def confirm(self, subscription: WireSubscription, timeout: float = 10) -> None:
        """Return when the server knows a subscription.

        Raises:
            Forbidden: this identity may not subscribe there.
            As `settle`.
        """
        subscription.awaited = True
        try:
            await self.settle(timeout)
        finally:
            subscription.awaited = False
        if subscription.denied is not None:
            raise subscription.denied

    def forget(self, subscription: WireSubscription) -> None:
        """End a subscription."""
        if self._routes.pop(b"%d" % subscription.sid, None) is not None:
            self._tell(subscription.end)

    async def stop(self, subscription: WireSubscription) -> None:
        """Tell the server to send no more to a subscription, and take what it has sent.

        Raises:
            As `flush`.
        """
        while self._overlapping is not None:  # what the next session has brought is held back
            await asyncio.shield(self._overlapping)
        self._tell(subscription.end)
        if self._session is not None:
            await self.flush()

    def report(self, error: Exception) -> None:
        """Tell what no call waits for."""
        if self._options.on_error is not None:
            self._options.on_error(error)
        else:
            _log.warning(
                "NATS connection: %s",
                error,
                exc_info=None if isinstance(error, PostroomError) else error,
            )

    # ── what the session tells ───────────────────────────────────────────────────────────────────────

    def arrived(self, sid: bytes, subject: bytes, reply: bytes, block: bytes, data: bytes) -> None:
        """A message."""
        self.received += 1
        subscription = self._routes.get(sid)
        if subscription is not None:
            subscription.take(WireFrame(subject, reply, block, data))

    def informed(self, session: Session, info: dict[str, Any]) -> None:
        """The server said something about itself."""
        if session is self._session:
            self._learn(info)

    def _learn(self, info: dict[str, Any]) -> None:
        self._info |= info
        if self._server is not None:
            self._pool.told(self._server, info)
        limit = info.get("max_payload")
        if isinstance(limit, int) and limit > 0:
            self.max_payload = limit

    def refused(self, error: PostroomError) -> None:
        """The server reported an error."""
        if not isinstance(error, Denied) or not self._waited_for(error):
            self.report(error)

    def _waited_for(self, error: Denied) -> bool:
        """Tell the calls that wait for what was denied, if there are any."""
        if error.verb == "publish":
            waiting = self._delivering.get(error.subject, [])
            for each in waiting:
                if not each.done():
                    each.set_exception(Forbidden(error.message))
            told = [tell(error, error.subject) for tell in self._denials]
            return any(told) or bool(waiting)
        denied = [each for each in self._routes.values() if each.subject == error.subject]
        for each in denied:
            each.denied = error
        return any(each.awaited for each in denied)

    def watch_denials(self, denied: Callable[[PostroomError, str], bool]) -> None:
        """Have a method called with each subject to which a publish was denied, as long as its object lives.

        It says whether a call waited for it; what none waits for is reported.
        """
        self._denials.add(denied)

    def paused(self, session: Session, *, paused: bool) -> None:
        """The transport has no room, or has room again."""
        if session is self._session:
            self._full = paused
            if not paused:
                self._wake()

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def gone(self, session: Session, error: PostroomError) -> None:
        """The server is gone."""
        if session is not self._session or self._server is None:
            return
        self._session = self._write = None
        self._full = False
        self._wake()
        self._pool.failed(self._server, error, lived=self._loop.time() - self._since)
        self._why = error
        if self._closed:
            return
        self.report(error)
        if not self._replacing:
            self._recover()

    def _recover(self) -> None:
        """Connect again, unless the server has ended the connection for good."""
        error = self._why or BusDisconnected("there is no connection to a NATS server")
        if self._options.insist and isinstance(error, Unauthorized):
            self._finish(error)
        else:
            self._reconnecting = asyncio.create_task(
                self._reconnect(error), name="reconnect to NATS"
            )

    # ── servers ──────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Connect for the first time.

        Raises:
            Unauthorized: a server does not know us.
            BusDisconnected, ProtocolViolation: none is reached, or none that is what it has to be.
        """
        self._begin(*await self._dial_one(self._loop.time() + self._options.wait))

    async def _dial_one(
        self, until: float, first: Server | None = None
    ) -> tuple[Server, Session, dict[str, Any]]:
        """Connect to one of the servers: `first` if it can be; each is tried once, and again before `until`.

        Raises:
            As `open`.
        """
        pause = 0.01
        while True:
            failures: list[PostroomError] = []
            for server in sorted(self._pool.servers, key=lambda each: each != first):
                left = until - self._loop.time()
                patience = self._options.timeout
                if self._options.wait or first is not None:
                    patience = min(patience, max(left, 0.01))
                try:
                    session, info = await dial(self, server, self._options, patience)
                except PostroomError as error:
                    failures.append(error)
                    if first is None:
                        self._pool.failed(server, error)
                else:
                    return server, session, info
            failures.sort(key=lambda error: not isinstance(error, Unauthorized))
            left = until - self._loop.time()
            if left <= 0 or isinstance(failures[0], Unauthorized):
                raise failures[0]
            await asyncio.sleep(min(left, pause * random.uniform(0.5, 1.5)))  # noqa: S311 (spreads load)
            pause = min(0.5, pause * 1.6)

    def _begin(self, server: Server, session: Session, info: dict[str, Any]) -> None:
        self._take_up(server, session, info)
        if lines := b"".join(each.line for each in self._routes.values()):
            session.transport.write(lines)
        self._write_out()

    def _take_up(self, server: Server, session: Session, info: dict[str, Any]) -> None:
        """Send over `session` from now on."""
        self._server, self._since, self._info = server, self._loop.time(), {}
        self._pool.connected(server)
        self._learn(info)
        self._session = session
        self._write = session.transport.write
        self._why = None

    def _came_back(self) -> None:
        self.reconnects += 1
        self.reconnected_at = self._loop.time()
        self._change()

    def _change(self) -> None:
        changed, self.changed = self.changed, self._loop.create_future()
        changed.set_result(None)

    async def _reconnect(self, error: PostroomError) -> None:
        """Try until a server is there, or until all that there are refuse us."""
        refused = False
        while found := self._pool.next():
            server, pause = found
            await asyncio.sleep(pause)
            try:
                session, info = await dial(self, server, self._options, self._options.timeout)
            except PostroomError as failure:
                error = failure
            else:
                self._begin(server, session, info)
                self._came_back()
                return
            self._pool.failed(server, error)
            if isinstance(error, Unauthorized) and not refused:
                refused = True
                self.report(error)
        self._finish(error)

    # ── one session after the other ──────────────────────────────────────────────────────────────────

    async def renew(self, timeout: float = 10) -> None:
        """Connect anew, with what the credentials' functions now give, and leave the former session.

        Make before break:

            connect, to the same server if it can be -> subscribe there too -> hold what is published until the server
            has worked through what was sent before -> send over the new session -> unsubscribe from the former one,
            take what is on its way (`Overlap`) -> end it

        At no moment is nobody subscribed, so nothing is lost and no request finds nobody. What is held is sent in its
        order, so that one publisher's messages stay in order. If it raises, the former session stays.

        Raises:
            BusDisconnected: no new session was made within `timeout` seconds.
            Unauthorized: the server refused the credential.
        """
        async with self._renewing:
            until = self._loop.time() + timeout
            await self.ready(timeout)
            self._replacing = True
            try:
                server, session, info = await self._dial_one(until, first=self._server)
                if self._closed:
                    session.hang_up()
                    raise self.lost or BusDisconnected("the connection was closed")
                if self._session is None:  # it broke meanwhile
                    self._begin(server, session, info)
                    self._came_back()
                else:
                    await self._take_over(self._session, server, session, info, until)
            finally:
                self._replacing = False
                if self._session is None and not self._closed:
                    self._recover()

    async def _take_over(
        self,
        former: Session,
        server: Server,
        session: Session,
        info: dict[str, Any],
        until: float,
    ) -> None:
        overlap = Overlap(
            self.arrived,
            shared=self._is_shared,
            room=self._options.unread_size,
            dropped=self._drop_held,
        )
        former.frames_to(overlap.former)
        session.frames_to(overlap.next)
        session.transport.write(b"".join(each.line for each in self._routes.values()))
        self._both, self._overlapping = (former, session), self._loop.create_future()
        far = info.get("server_id") != self._info.get("server_id")
        in_order = False
        try:
            if not await self._worked_through(session, until):
                raise BusDisconnected("the new connection broke before it took over")
            if far:
                await asyncio.sleep(SPREAD)
            self._hold()
            in_order = await self._worked_through(former, until)
            if not session.up:
                raise BusDisconnected("the new connection broke before it took over")
            self._both = ()
            self._take_up(server, session, info)
            self._release()
            former.transport.write(b"".join(each.end for each in self._routes.values()))
            in_order &= await self._worked_through(former, until)
            overlap.release()
            await self._worked_through(session, until)
            if far:
                await asyncio.sleep(SPREAD)
        finally:
            self._both = ()
            self._release()
            if session is self._session or former is not self._session:
                overlap.release()
            session.frames_to(self.arrived)
            former.frames_to(self.arrived)
            (session if former is self._session else former).hang_up()
            overlapping, self._overlapping = self._overlapping, None
            overlapping.set_result(None)
        if not in_order:
            self._came_back()

    def _hold(self) -> None:
        self._write_out()
        self._write, self._holding = None, self._loop.create_future()

    def _release(self) -> None:
        holding, self._holding = self._holding, None
        if holding is not None:
            if self._session is not None:
                self._write = self._session.transport.write
                self._write_out()
            holding.set_result(None)

    async def _worked_through(self, session: Session, until: float) -> bool:
        """Whether the server has worked through everything that was sent over `session`, in the time of one step."""
        pong = session.ping()
        left = max(0.0, min(STEP, until - self._loop.time()))
        await asyncio.wait({pong}, timeout=left)
        return pong.done() and pong.exception() is None

    def _is_shared(self, sid: bytes) -> bool:
        subscription = self._routes.get(sid)
        return subscription is not None and bool(subscription.queue)

    def _drop_held(self) -> None:
        self.dropped += 1
        if self.dropped.bit_count() == 1:
            self.report(
                Refused("a frame was dropped: too many came while the connection was renewed")
            )

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────

    async def drain(self) -> None:
        """End every subscription when what came for it was handled, see everything sent, and close.

        Raises:
            As `flush`.
        """
        try:
            for subscription in tuple(self._routes.values()):
                await subscription.drain()
            await self.flush()
        finally:
            await self.close()

    async def close(self) -> None:
        """End it for good; what was published is written before."""
        if self._closed:
            return
        self._write_out()
        session, reconnecting = self._session, self._reconnecting
        self._finish(None)
        if reconnecting is not None:
            reconnecting.cancel()
            await asyncio.gather(reconnecting, return_exceptions=True)
        if session is not None:
            await session.close()

    def _finish(self, why: PostroomError | None) -> None:
        """It is over for good."""
        self._closed, self._why = True, why
        for session in self._both:
            session.hang_up()
        self._session = self._write = None
        for subscription in tuple(self._routes.values()):
            if subscription.reader is not None:
                subscription.reader.cancel()
        self._routes.clear()
        self._out.clear()
        self._held = 0
        self._wake()
        self._change()
        if why is not None:
            self.report(why)
