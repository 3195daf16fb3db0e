"""A connection that finds another server when it loses one, and renews its session (docs/binding.md, Connections)."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from postroom_a2a.errors import BusDisconnected, InvalidInput, PostroomError, Unauthorized
from postroom_a2a.nats.inbound import Inbound
from postroom_a2a.nats.options import Options, ServerAddress
from postroom_a2a.nats.overlap import Overlap
from postroom_a2a.nats.servers import Pool
from postroom_a2a.nats.session import ServerSession, dial
from postroom_a2a.retry import Backoff, RetryPolicy

STEP = 2.0
"""Seconds that a server has for each step of a renewal; then the former session is cut."""

SPREAD = 0.2
"""Seconds in which the servers of a cluster learn of each other's subscriptions; no event tells when they have."""

LEAVING = RetryPolicy(base=10.0, cap=55.0)
"""Seconds beyond `Options.patience` before the next server is left, too: perhaps all of them wait for a leader."""

SETTLED = 120.0
"""Seconds without leaving a server after which `LEAVING` begins anew."""


class WireConnection(Inbound):
    """An open connection, an implementation of the port `Connection`; `connect` makes it.

    When its server goes away it connects again, to that one or another, for ever. Its subscriptions live on, and it
    sends then what is published meanwhile.

    Attributes:
        reconnects: times that it connected again, so that what was under way may be lost.
        reconnected_at: time of the last reconnect, by the loop's clock.
    """

    def __init__(self, pool: Pool, options: Options) -> None:
        super().__init__(options)
        self.reconnects = 0
        self.reconnected_at = float("-inf")
        self._pool = pool
        self._server: ServerAddress | None = None
        self._info: dict[str, Any] = {}
        self._since = 0.0
        self._reconnecting: asyncio.Task[None] | None = None
        self._renewing = asyncio.Lock()
        self._replacing = False
        self._leaves = 0
        self._left_at = float("-inf")
        self._longer = 0.0

    def reconnect(self) -> None:
        """Leave a server that seems to hang, and connect again."""
        if self._session is not None:
            self._session.abort(BusDisconnected("the NATS server was left"))

    def leave(self, since: float) -> None:
        """Leave a server that is up, but over which JetStream has not answered since then: it may be cut off.

        Only after `Options.patience` seconds on this server, each time in a row after more, and where there is another:
        in the list, or behind a `dial` that says so by naming a cluster.

        Args:
            since: a time of the loop's clock.
        """
        elsewhere = len(self._pool.servers) > 1 or (
            self._options.dial is not None and bool(self._info.get("cluster"))
        )
        if self._session is None or self._server is None or not elsewhere:
            return
        now = self._loop.time()
        if now - self._left_at > SETTLED:
            self._leaves, self._longer = 0, 0.0
        if now - max(since, self.reconnected_at) < self._options.patience + self._longer:
            return
        self._leaves, self._left_at = self._leaves + 1, now
        self._longer = LEAVING.delay(self._leaves)
        self._pool.put_last(self._server)
        self.reconnect()

    async def __aenter__(self) -> Self:
        """The connection itself, which is open already."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        await self.close()

    # ── from the session ─────────────────────────────────────────────────────────────────────────────

    def informed(self, session: ServerSession, info: dict[str, Any]) -> None:
        """Note what the server says about itself."""
        if session is self._session:
            self._learn(info)

    def _learn(self, info: dict[str, Any]) -> None:
        self._info |= info
        if self._server is not None:
            self._pool.learn(self._server, info)
        limit = info.get("max_payload")
        if isinstance(limit, int) and limit > 0:
            self.max_payload = limit

    def gone(self, session: ServerSession, error: PostroomError) -> None:
        """Begin to connect again, since the session ended."""
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
        """Connect again, unless the server has closed the connection for good."""
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
            Unauthorized: a server refuses the credential.
            BusDisconnected, ProtocolViolation: no server is reached, or none that can do what the options ask for.
            InvalidInput: the connection was closed.
        """
        if self._closed:
            raise InvalidInput("a connection that was closed opens no more: make another one")
        self._begin(*await self._dial_one(self._loop.time() + self._options.wait))

    async def _dial_one(
        self, until: float, first: ServerAddress | None = None
    ) -> tuple[ServerAddress, ServerSession, dict[str, Any]]:
        """Connect to one of the servers, `first` before the others; each is tried once, and again before `until`.

        Raises:
            As `open`.
        """
        backoff = Backoff(0.02, 0.5)
        while True:
            failures: list[PostroomError] = []
            for server in sorted(self._pool.servers, key=lambda each: each != first):
                left = until - self._loop.time()
                timeout = self._options.timeout
                if self._options.wait or first is not None:
                    timeout = min(timeout, max(left, 0.01))
                try:
                    session, info = await dial(self, server, self._options, timeout)
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
            await asyncio.sleep(min(left, backoff.next()))

    def _begin(self, server: ServerAddress, session: ServerSession, info: dict[str, Any]) -> None:
        self._take_up(server, session, info)
        if lines := b"".join(each.line for each in self._routes.values()):
            session.write(lines)
        self._write_out()

    def _take_up(self, server: ServerAddress, session: ServerSession, info: dict[str, Any]) -> None:
        """Send over `session` from now on."""
        self._server, self._since, self._info = server, self._loop.time(), {}
        self._pool.connected(server)
        self._learn(info)
        self._session = session
        self._write = session.write
        self._why = None

    def _came_back(self) -> None:
        self.reconnects += 1
        self.reconnected_at = self._loop.time()
        self._change()

    async def _reconnect(self, error: PostroomError) -> None:
        """Try until a server accepts the connection, or until all of them refuse the credential."""
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
        """Make a new session, with what the credentials' functions now give, and leave the former one.

        Make before break:

            connect, to the same server if possible -> subscribe there too -> hold what is published until the server
            has processed what was sent before -> send over the new session -> unsubscribe from the former one, take
            what is on its way (`Overlap`) -> end it

        Some session is subscribed at every moment, so no message is lost and no request goes unheard. The connection
        sends what it held in order, so one publisher's messages stay in order. If `renew` raises, the former session
        stays.

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
        former: ServerSession,
        server: ServerAddress,
        session: ServerSession,
        info: dict[str, Any],
        until: float,
    ) -> None:
        overlap = Overlap(
            self.arrived,
            shared=self._is_shared,
            size_limit=self._options.unread_size,
            dropped=self._drop_held,
        )
        former.frames_to(overlap.former)
        session.frames_to(overlap.next)
        session.write(b"".join(each.line for each in self._routes.values()))
        self._both, self._overlapping = (former, session), self._loop.create_future()
        elsewhere = info.get("server_id") != self._info.get("server_id")
        in_order = False
        try:
            if not await self._has_processed(session, until):
                raise BusDisconnected("the new connection broke before it took over")
            if elsewhere:
                await asyncio.sleep(SPREAD)
            self._hold()
            in_order = await self._has_processed(former, until)
            if not session.up:
                raise BusDisconnected("the new connection broke before it took over")
            self._both = ()
            self._take_up(server, session, info)
            self._release()
            former.write(b"".join(each.end for each in self._routes.values()))
            in_order &= await self._has_processed(former, until)
            overlap.release()
            await self._has_processed(session, until)
            if elsewhere:
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

    async def _has_processed(self, session: ServerSession, until: float) -> bool:
        """Whether the server has processed everything that was sent over `session`, within the time of one step."""
        pong = session.ping()
        left = max(0.0, min(STEP, until - self._loop.time()))
        await asyncio.wait({pong}, timeout=left)
        return pong.done() and pong.exception() is None

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────

    async def drain(self) -> None:
        """End every subscription once what came for it is handled, send everything, and close.

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
        """Write what was published, and close the connection for good."""
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
        """Close the connection for good; `why` is the reason to report, None if the owner closes it."""
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
