"""A session: the stream to one server, from dialling until it ends."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, cast

from postroom_a2a.errors import BusDisconnected, PostroomError, ProtocolViolation, Unauthorized
from postroom_a2a.nats.info import read_info
from postroom_a2a.nats.options import Options, ServerAddress, connect_line
from postroom_a2a.nats.parser import OnMessage, Parser
from postroom_a2a.nats.server_errors import refusal_of

WRITE_BUFFER = 1024 * 1024
"""Bytes that may lie in the transport before publishing waits."""

VERSION = "1"
"""The version of this client in the server's list of connections."""

MAX_PINGS = 2
"""Unanswered pings after which a session counts as hung."""


class Owner(Protocol):
    """The calls of a session to its connection.

    Attributes:
        at_once: whether the last read brought a single message (`Outbound`).
    """

    at_once: bool

    def arrived(self, sid: bytes, subject: bytes, reply: bytes, block: bytes, data: bytes) -> None:
        """Take a message."""
        ...

    def informed(self, session: ServerSession, info: dict[str, Any]) -> None:
        """Note what the server says about itself."""
        ...

    def refused(self, error: PostroomError) -> None:
        """Take an error of the server; if the server ends the session, `gone` follows."""
        ...

    def paused(self, session: ServerSession, *, paused: bool) -> None:
        """Note that the transport is full, or has room again."""
        ...

    def gone(self, session: ServerSession, error: PostroomError) -> None:
        """Note that an established session has ended."""
        ...


class ServerSession(asyncio.Protocol):
    """The protocol on the stream to one server; `dial` makes it."""

    transport: asyncio.Transport

    def __init__(self, owner: Owner, options: Options) -> None:
        self._owner = owner
        self._options = options
        self._loop = asyncio.get_running_loop()
        self._parser = Parser(owner.arrived, self._control)
        self._info: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._pongs: deque[asyncio.Future[None]] = deque()
        self._up = False
        self._why: PostroomError | None = None
        self._unanswered = 0
        self._timer: asyncio.TimerHandle | None = None

    # ── asyncio.Protocol ─────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=WRITE_BUFFER)

    def data_received(self, data: bytes) -> None:
        """Parse what the server sent."""
        try:
            self._owner.at_once = self._parser.feed(data) == 1
        except ProtocolViolation as error:
            self.abort(error)

    def eof_received(self) -> bool:
        """Close the stream, as the server did."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what still waits, and tell the owner."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._ended.done():
            self._ended.set_result(None)
        error = self._why or BusDisconnected(f"the NATS server ended the connection: {exc or ''}")
        if not self._info.done():
            self._info.set_exception(error)
            self._info.exception()  # seen, also where nobody waits for it
        while self._pongs:
            _fail(self._pongs.popleft(), error)
        if self._up:
            self._up = False
            self._owner.gone(self, error)

    def pause_writing(self) -> None:
        """Tell the owner that the transport is full."""
        self._owner.paused(self, paused=True)

    def resume_writing(self) -> None:
        """Tell the owner that the transport has room again."""
        self._owner.paused(self, paused=False)

    # ── for the owner ────────────────────────────────────────────────────────────────────────────────

    @property
    def up(self) -> bool:
        """Whether the server has accepted us and the stream is open."""
        return self._up and not self.transport.is_closing()

    def frames_to(self, take: OnMessage) -> None:
        """Hand messages to `take` from now on, not to the owner."""
        self._parser.message = take

    async def shake_hands(self, server: ServerAddress) -> dict[str, Any]:
        """Begin TLS if it is wanted, log in, and return the server's INFO.

        Raises:
            Unauthorized: the server refuses the credential.
            ProtocolViolation: it is not a NATS server, or cannot do what the options ask for.
            BusDisconnected: the server hung up.
            OSError: TLS failed.
        """
        info = await self._info
        options = self._options
        offered = info.get("tls_required") or info.get("tls_available")
        wanted = server.tls or options.tls is not None or info.get("tls_required")
        if wanted and not options.tls_first:
            if not offered:
                raise ProtocolViolation(f"the NATS server at {server.place} offers no TLS")
            if self._parser.pending:
                raise ProtocolViolation("the NATS server sent data where TLS has to begin")
            context = options.tls or ssl.create_default_context()
            transport = await self._loop.start_tls(
                self.transport, self, context, server_hostname=options.tls_name or server.host
            )
            if transport is None:
                raise BusDisconnected("the NATS server hung up where TLS has to begin")
            self.connection_made(transport)
        self.write(connect_line(options, server, info, VERSION))
        await self.ping()
        if self._ended.done():
            raise self._why or BusDisconnected("the NATS server hung up")
        self._up = True
        self._tick()
        return info

    def ping(self) -> asyncio.Future[None]:
        """Send a PING behind everything that was written; the future is done when the server has answered it."""
        pong: asyncio.Future[None] = self._loop.create_future()
        if self._ended.done():
            _fail(pong, self._why or BusDisconnected("the NATS server ended the connection"))
        else:
            self._pongs.append(pong)
            self.write(b"PING\r\n")
        return pong

    def write(self, data: bytes) -> None:
        """Write, unless the stream has ended: asyncio's transport drops it there, and uvloop's raises."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def abort(self, error: PostroomError) -> None:
        """Hang up at once."""
        self._why = self._why or error
        self.hang_up()

    def hang_up(self) -> None:
        """Close the stream at once, whatever it still holds."""
        # Python 3.11's TLS transport, once closed, trips over its own `abort`.
        with suppress(AttributeError):
            self.transport.abort()

    async def close(self) -> None:
        """Hang up once everything is written, at the latest after the time-out."""
        self.transport.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.timeout):
                await asyncio.shield(self._ended)
        self.hang_up()

    # ── from the server ──────────────────────────────────────────────────────────────────────────────

    def _control(self, verb: bytes, rest: bytes) -> None:
        if verb == b"PONG":
            self._unanswered = 0
            if self._pongs:
                pong = self._pongs.popleft()
                if not pong.done():
                    pong.set_result(None)
        elif verb == b"PING":
            self.write(b"PONG\r\n")
        elif verb == b"INFO":
            info = read_info(rest)
            if self._info.done():
                self._owner.informed(self, info)
            else:
                self._info.set_result(info)
        elif verb == b"-ERR":
            self._refused(refusal_of(rest))

    def _refused(self, error: PostroomError) -> None:
        if isinstance(error, (Unauthorized, BusDisconnected, ProtocolViolation)):
            self._why = self._why or error  # the server hangs up after it
        if self._up:
            self._owner.refused(error)
        elif self._pongs:
            _fail(self._pongs.popleft(), error)

    def _tick(self) -> None:
        if self._unanswered >= MAX_PINGS:
            self.abort(BusDisconnected("the NATS server does not answer"))
            return
        self._unanswered += 1
        self.ping()
        self._timer = self._loop.call_later(self._options.ping_interval, self._tick)


async def dial(
    owner: Owner, server: ServerAddress, options: Options, timeout: float
) -> tuple[ServerSession, dict[str, Any]]:
    """Connect to a server within `timeout` seconds; returns the session and the server's INFO.

    Raises:
        Unauthorized: the server refuses the credential.
        BusDisconnected, ProtocolViolation: no server is reached, or it cannot do what the options ask for.
    """
    session = ServerSession(owner, options)
    try:
        async with asyncio.timeout(timeout):
            await (options.dial or partial(_dial_tcp, options))(lambda: session, server)
            return session, await session.shake_hands(server)
    except OSError as error:  # TimeoutError is one
        raise BusDisconnected(
            f"no NATS server answers at {server.place}: {error or 'not in time'}"
        ) from error
    except PostroomError:
        raise
    except Exception as error:  # from the credentials' functions, or from asyncio where a peer leaves a TLS handshake
        raise BusDisconnected(f"connecting to {server.place} failed: {error!r}") from error
    finally:
        if not session.up:
            session.hang_up()


async def _dial_tcp(
    options: Options, factory: Callable[[], asyncio.Protocol], server: ServerAddress
) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
    first = (options.tls or ssl.create_default_context()) if options.tls_first else None
    return await asyncio.get_running_loop().create_connection(
        factory,
        server.host,
        server.port,
        ssl=first,
        server_hostname=(options.tls_name or server.host) if first else None,
    )


def _fail(waiting: asyncio.Future[None], error: PostroomError) -> None:
    if not waiting.done():
        waiting.set_exception(error)
        waiting.exception()  # seen: nobody waits for the session's own pings
