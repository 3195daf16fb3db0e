"""The connection: messages out and in, and a server again when one is lost (docs/binding.md, Connections)."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from postroom_a2a.errors import (
    BusDisconnected,
    InvalidInput,
    MessageTooLarge,
    PostroomError,
    RequestTimeout,
    Unauthorized,
)
from postroom_a2a.nats.commands import is_subject, publish_line
from postroom_a2a.nats.frame import WireFrame, write_headers
from postroom_a2a.nats.options import Options, Server
from postroom_a2a.nats.port import Frame
from postroom_a2a.nats.server_errors import Denied
from postroom_a2a.nats.servers import Pool
from postroom_a2a.nats.session import Session, dial
from postroom_a2a.nats.subscriptions import Reader, Watchers, WireSubscription, guarded

TURN = 256 * 1024
"""Bytes that are written at once at the latest; usually it is what one turn of the loop published."""

_log = logging.getLogger(__name__)


class WireConnection:
    """An open connection; it keeps the port `Connection`. Made by `connect`.

    When its server goes away it connects again, to that one or another, for ever; subscriptions live on, and what is
    published meanwhile is sent then.

    Args:
        pool: of the servers.
        options: of the connection.

    Attributes:
        reconnects: times that it connected again.
        sent: messages that were published.
        received: messages that came.
    """

    def __init__(self, pool: Pool, options: Options) -> None:
        self.max_payload = 1024 * 1024
        self.reconnects = 0
        self.sent = 0
        self.received = 0
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
        self._closed = False
        self._why: PostroomError | None = None
        self._server: Server | None = None
        self._since = 0.0
        self._reconnecting: asyncio.Task[None] | None = None

    # ── state ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_closed(self) -> bool:
        """Whether it is over for good."""
        return self._closed

    @property
    def is_connected(self) -> bool:
        """Whether it is up now."""
        return self._session is not None

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
        if self._closed:
            raise self._why or BusDisconnected("the connection was closed")
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

        Args:
            timeout: seconds.

        Raises:
            RequestTimeout: not in time.
            BusDisconnected: the connection was lost; what was sent may be lost as well.
        """
        session = self._session
        if session is None:
            raise self._why or BusDisconnected("there is no connection to a NATS server")
        self._write_out()
        pong = session.ping()
        await asyncio.wait({pong}, timeout=timeout)
        if not pong.done():
            raise RequestTimeout("the NATS server does not answer")
        pong.result()

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
            BusDisconnected: it is closed.
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
            raise self._why or BusDisconnected("the connection was closed")
        if not is_subject(subject) or (queue and not is_subject(queue)):
            raise InvalidInput(f"{subject!r} cannot be subscribed")
        self._sids += 1
        return WireSubscription(self, self._sids, subject, queue)

    def _announce(self, subscription: WireSubscription) -> None:
        self._routes[b"%d" % subscription.sid] = subscription
        if self._write is not None:
            self._write_out()
            self._write(subscription.line)

    def forget(self, subscription: WireSubscription) -> None:
        """End a subscription."""
        if self._routes.pop(b"%d" % subscription.sid, None) is not None:
            self._unsubscribe(subscription)

    async def stop(self, subscription: WireSubscription) -> None:
        """Tell the server to send no more to a subscription, and take what it has sent.

        Raises:
            As `flush`.
        """
        self._unsubscribe(subscription)
        if self._session is not None:
            await self.flush()

    def _unsubscribe(self, subscription: WireSubscription) -> None:
        if self._write is not None:
            self._write_out()
            self._write(b"UNSUB %d\r\n" % subscription.sid)

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

    def informed(self, info: dict[str, Any]) -> None:
        """The server said something about itself."""
        if self._server is not None:
            self._pool.told(self._server, info)
        limit = info.get("max_payload")
        if isinstance(limit, int) and limit > 0:
            self.max_payload = limit

    def refused(self, error: PostroomError) -> None:
        """The server reported an error."""
        if isinstance(error, Denied):
            if error.verb == "publish":
                for tell in self._denials:
                    tell(error, error.subject)
            for subscription in self._routes.values():
                if error.verb == "subscription" and subscription.subject == error.subject:
                    subscription.denied = error
        self.report(error)

    def watch_denials(self, denied: Callable[[PostroomError, str], bool]) -> None:
        """Have a method called with each subject to which a publish was denied, as long as its object lives."""
        self._denials.add(denied)

    def paused(self, *, paused: bool) -> None:
        """The transport has no room, or has room again."""
        self._full = paused
        if not paused:
            self._wake()

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def lost(self, session: Session, error: PostroomError) -> None:
        """The server is gone."""
        if session is not self._session or self._server is None:
            return
        self._session = self._write = None
        self._full = False
        self._wake()
        self._pool.failed(self._server, error, lived=self._loop.time() - self._since)
        if not self._closed:
            self.report(error)
            self._reconnecting = asyncio.create_task(
                self._reconnect(error), name="reconnect to NATS"
            )

    # ── servers ──────────────────────────────────────────────────────────────────────────────────────

    async def open(self) -> None:
        """Connect for the first time; each server is tried once.

        Raises:
            Unauthorized: a server does not know us.
            BusDisconnected, ProtocolViolation: none is reached, or none that is what it has to be.
        """
        failures: list[PostroomError] = []
        for server in self._pool.servers:
            try:
                session, info = await dial(self, server, self._options)
            except PostroomError as error:
                failures.append(error)
                self._pool.failed(server, error)
            else:
                self._begin(server, session, info)
                return
        failures.sort(key=lambda error: not isinstance(error, Unauthorized))
        raise failures[0]

    def _begin(self, server: Server, session: Session, info: dict[str, Any]) -> None:
        self._server, self._since = server, self._loop.time()
        self._pool.connected(server)
        self.informed(info)
        self._session = session
        self._write = session.transport.write
        if lines := b"".join(each.line for each in self._routes.values()):
            self._write(lines)
        self._write_out()

    async def _reconnect(self, error: PostroomError) -> None:
        """Try until a server is there, or until all that there are refuse us."""
        while found := self._pool.next():
            server, pause = found
            await asyncio.sleep(pause)
            try:
                session, info = await dial(self, server, self._options)
            except PostroomError as failure:
                error = failure
            except Exception as failure:  # noqa: BLE001 - of credentials; the next attempt may succeed
                error = BusDisconnected(f"connecting to {server.place} failed: {failure!r}")
            else:
                self.reconnects += 1
                self._begin(server, session, info)
                return
            self._pool.failed(server, error)
            if isinstance(error, Unauthorized):
                self.report(error)
        self._why = error
        self.report(Unauthorized("every NATS server refuses us; the connection is over for good"))
        await self.close()

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
        self._closed = True
        if self._reconnecting is not None and self._reconnecting is not asyncio.current_task():
            self._reconnecting.cancel()
            await asyncio.gather(self._reconnecting, return_exceptions=True)
        session = self._session
        if session is not None:
            self._write_out()
            await session.close()
        for subscription in tuple(self._routes.values()):
            if subscription.reader is not None:
                subscription.reader.cancel()
        self._routes.clear()
        self._out.clear()
        self._held = 0
        self._wake()
