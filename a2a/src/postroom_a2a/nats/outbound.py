"""The sending half of a connection: what is published is written once a turn of the loop, and confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from postroom_a2a.errors import (
    BusDisconnected,
    MessageTooLarge,
    PostroomError,
    RequestTimeout,
)
from postroom_a2a.nats.frame import publish_line, write_headers
from postroom_a2a.nats.options import Options
from postroom_a2a.nats.session import ServerSession

TURN = 256 * 1024
"""Bytes that may wait for the end of a turn of the loop; more are written at once."""

LATER = 0.005
"""Seconds that a message of `post_later` may wait for another one to go with."""


class Outbound:
    """Publishes over the present session, and keeps what is published while the connection has no server.

    Attributes:
        at_once: whether to write the next message at once, since it may be the only one of its turn of the loop: the
            session sets it after a read that brought a single message, as an answer or a request alone does.
        changed: done when the connection came back, or is closed for good; then another future takes its place.
    """

    def __init__(self, options: Options) -> None:
        self.max_payload = 1024 * 1024
        self.sent = 0
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._session: ServerSession | None = None
        self._write: Callable[[bytes], None] | None = None
        self.at_once = False
        self._out: list[bytes] = []
        self._held = 0
        self._due = False
        self._later: asyncio.TimerHandle | None = None
        self._full = False
        self._room: asyncio.Future[None] | None = None
        self._holding: asyncio.Future[None] | None = None
        self._closed = False
        self._why: PostroomError | None = None
        self.changed: asyncio.Future[None] = self._loop.create_future()

    # ── state ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed for good."""
        return self._closed

    @property
    def is_connected(self) -> bool:
        """Whether the connection has a server now."""
        return self._session is not None

    @property
    def lost(self) -> PostroomError | None:
        """The reason why the connection is closed for good, else None; a new object each time, so it may be raised."""
        if not self._closed:
            return None
        if self._why is None:
            return BusDisconnected("the connection was closed")
        return type(self._why)(self._why.message, remedy=self._why.remedy)

    async def ready(self, timeout: float | None = None) -> None:
        """Wait until the connection has a server, for `timeout` seconds or for ever.

        Raises:
            BusDisconnected, Unauthorized: it has none in time, or is closed for good.
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

    # ── publishing ───────────────────────────────────────────────────────────────────────────────────

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Send at the end of this turn of the loop; wait only while too much is unsent.

        Raises:
            MessageTooLarge: the message is over the server's limit; nothing was sent.
            InvalidInput: the subject or a header is malformed.
            BusDisconnected: the connection is closed, or too much waits for a server.
        """
        size, pieces = self._message(subject, payload, reply, headers)
        if self._full or self._write is None or self._held > TURN:
            await self._make_room(size)
        self._send(size, pieces)

    def post(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: dict[str, str] | None = None,
    ) -> bool:
        """As `publish`, if that need not wait; else False, and nothing is sent."""
        if self._full or self._write is None or self._held > TURN:
            return False
        self._send(*self._message(subject, payload, reply, headers))
        return True

    def post_later(self, subject: str, payload: bytes) -> bool:
        """As `post`, for what nobody waits for: it goes with the next message, or by itself after `LATER` seconds.

        A write wakes the server, which costs both sides more than the message does.
        """
        if self._full or self._write is None or self._held > TURN:
            return False
        size, pieces = self._message(subject, payload, "", None)
        self.sent += 1
        self._held += size
        self._out += pieces
        if not self._due and self._later is None:
            self._later = self._loop.call_later(LATER, self._write_later)
        return True

    def _write_later(self) -> None:
        self._later = None
        self._write_out()

    def _message(
        self, subject: str, payload: bytes, reply: str, headers: dict[str, str] | None
    ) -> tuple[int, tuple[bytes, ...]]:
        """The size of a message on the wire, and its pieces; raises as `publish` does."""
        size = len(payload)
        block = write_headers(headers) if headers else b""
        size += len(block)
        if size > self.max_payload:
            raise MessageTooLarge(
                f"the message has {size} bytes, the server's limit is {self.max_payload}"
            )
        line = publish_line(subject, reply, len(block), size)
        pieces = (line, block, payload, b"\r\n") if block else (line, payload, b"\r\n")
        return size + len(line) + 2, pieces

    def _send(self, size: int, pieces: tuple[bytes, ...]) -> None:
        self.sent += 1
        self._held += size
        self._out += pieces
        if self.at_once:
            self.at_once = False
            self._write_out()
        elif not self._due:
            self._due = True
            self._loop.call_soon(self._write_at_end)

    async def _make_room(self, size: int) -> None:
        """Wait until the transport takes more; raises `BusDisconnected` as `publish` does."""
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

    def _write_at_end(self) -> None:
        self._due = False
        self._write_out()

    def _write_out(self) -> None:
        if self._out and self._write is not None:
            data = b"".join(self._out)
            self._out.clear()
            self._held = 0
            self._write(data)

    async def flush(self, timeout: float = 10) -> None:
        """Return when the server has processed everything that was sent so far.

        Raises:
            RequestTimeout: the server did not confirm it in time.
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
        """Flush; if the connection breaks meanwhile, wait until it is back and flush again.

        Raises:
            RequestTimeout: the server did not confirm it in time.
            BusDisconnected, Unauthorized: there is no server in time, or the connection is closed for good.
        """
        until = self._loop.time() + timeout
        while True:
            await self.ready(max(0.0, until - self._loop.time()))
            try:
                return await self.flush(max(0.0, until - self._loop.time()))
            except BusDisconnected:
                continue

    # ── for the session and its renewal ──────────────────────────────────────────────────────────────

    def paused(self, session: ServerSession, *, paused: bool) -> None:
        """Note that the transport is full, or has room again."""
        if session is self._session:
            self._full = paused
            if not paused:
                self._wake()

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _change(self) -> None:
        changed, self.changed = self.changed, self._loop.create_future()
        changed.set_result(None)

    def _hold(self) -> None:
        """Keep what is published from now on until `_release`."""
        self._write_out()
        self._write, self._holding = None, self._loop.create_future()

    def _release(self) -> None:
        holding, self._holding = self._holding, None
        if holding is not None:
            if self._session is not None:
                self._write = self._session.write
                self._write_out()
            holding.set_result(None)
