"""HTTP listeners: the ports for people, and single connections for the doors of workers.

Any process of this machine can connect without a key, and uvicorn waits for ever for a request that does not come or
does not end. `DeadlineProtocol` bounds the time and the number of such connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import resource
import socket
import ssl
from collections.abc import Generator
from typing import ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from postroom.control.org_router import WORKER, App, Receive, Scope, Send
from postroom.errors import InvalidInput, PortTaken

SHUTDOWN_GRACE = 2
"""Seconds that open responses have at the end; streams end by themselves at shutdown."""


HANDSHAKE_TIMEOUT = 5.0
"""Seconds that a client has for the TLS handshake."""


def bind(host: str, port: int | None, *, usual: int, tls: bool = False) -> socket.socket:
    """A listening socket on `host`. A chosen port must be free; None means the usual one, or any free one.

    Raises:
        InvalidInput: `host` is not an IP address, or without `tls` not a loopback address.
        PortTaken: `port` is in use.
    """
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError as error:
        raise InvalidInput(f"{host!r} is not an IP address", remedy="use 127.0.0.1") from error
    if not loopback and not tls:
        raise InvalidInput(f"refusing to listen on {host} without TLS", remedy="use 127.0.0.1")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio turns Nagle's algorithm off, which costs 40 ms an answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    wanted = usual if port is None else port
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if host == "::":
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # `::` includes IPv4
    try:
        listener.bind((host, wanted))
        listener.listen()  # before this, SO_REUSEADDR would let another process bind it, too
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            listener.close()
            raise InvalidInput(
                f"this machine has no address {host}", remedy="name one that it has, or 0.0.0.0"
            ) from error
        listener.close()
        if port is None:
            return bind(host, 0, usual=usual, tls=tls)
        raise PortTaken(
            f"cannot listen on {host}, port {port}: {error.strerror}",
            remedy="choose another, or 0 for any free one",
        ) from error
    return listener


UNFINISHED = (h11.IDLE, h11.SEND_BODY)
"""States of a peer whose request has not begun, or not ended."""


def _half_of_descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft // 2 if soft > 0 else 10_000


class DeadlineProtocol(H11Protocol):
    """Cuts a connection whose request takes too long, and connections above the limit.

    Attributes:
        deadline: seconds for a whole request; the connection is cut after twice as long at the latest.
        least: bytes in that time with which a longer request counts as going on: a large upload.
        most: open connections of one listener; the other half of the descriptors is for the post room's work.
    """

    deadline: ClassVar[float] = 15.0
    least: ClassVar[int] = 64 * 1024
    most: ClassVar[int] = _half_of_descriptors()
    _timer: asyncio.TimerHandle | None = None
    _taken: int = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the deadline; cut a connection above the limit."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the deadline."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of the request."""
        self._taken += len(data)
        super().data_received(data)

    def _watch(self) -> None:
        self._seen = self.cycle, self.conn.their_state
        self._taken = 0
        self._timer = self.loop.call_later(self.deadline, self._look)

    def _look(self) -> None:
        # Unchanged since one whole deadline: the same request, or the same wait for one.
        now = self.cycle, self.conn.their_state
        if self.conn.their_state in UNFINISHED and now == self._seen and not self._goes_on():
            self.transport.abort()
        else:
            self._watch()

    def _goes_on(self) -> bool:
        """Whether the application reads the request's body, and enough of it comes."""
        taken = self.cycle is not None and not self.cycle.response_complete
        return taken and self._taken >= self.least


class _Server(uvicorn.Server):
    """uvicorn inside our own TaskGroup, which handles the signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, with a deadline for the TLS handshake: `DeadlineProtocol` begins after it."""
        context = self.config.ssl
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                lambda: DeadlineProtocol(
                    config=self.config, server_state=self.server_state, app_state={}
                ),
                sock=listener,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT if context else None,
                backlog=self.config.backlog,
            )
            for listener in sockets or []
        ]
        self.started = True


def _config(app: App, context: ssl.SSLContext | None = None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ssl_context_factory=(lambda _config, _default: context) if context else None,
        http=DeadlineProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=SHUTDOWN_GRACE,
    )


class HttpListener:
    """Serves one ASGI application on a bound socket.

    Args:
        context: TLS of the connections, None for none.
    """

    def __init__(
        self, app: App, listener: socket.socket, context: ssl.SSLContext | None = None
    ) -> None:
        self._server = _Server(_config(app, context))
        self._listener = listener

    async def serve(self) -> None:
        """Serve until `stop`; run it in a TaskGroup."""
        await self._server.serve(sockets=[self._listener])

    def stop(self) -> None:
        """Stop accepting; `serve` returns when open responses are done, or after `SHUTDOWN_GRACE`."""
        self._server.should_exit = True


class WorkerDialer:
    """Opens HTTP connections into the application on behalf of workers, without any port or path.

    The gateway sets the worker of each connection, so no header can claim another one.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._state = ServerState()

    async def dial(self, uid: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The near end of a connection whose far end is served as worker `uid`."""

        async def as_worker(scope: Scope, receive: Receive, send: Send) -> None:
            scope[WORKER] = uid
            await self._app(scope, receive, send)

        config = _config(as_worker)
        config.load()
        near, far = socket.socketpair()
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(
            lambda: DeadlineProtocol(config=config, server_state=self._state, app_state={}), far
        )
        return await asyncio.open_connection(sock=near)
