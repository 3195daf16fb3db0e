"""HTTP listeners: the ports for people, and single connections for the doors of workers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import ssl
from collections.abc import Generator

import uvicorn

from postroom.control.http_protocol import Connections, DeadlineProtocol
from postroom.control.org_router import WORKER, App, Receive, Scope, Send
from postroom.control.websocket_protocol import BoundedWebSocket
from postroom.errors import InvalidInput, PortTaken
from postroom.protocol.intervals import SOCKET_PONG, STREAM_BEAT
from postroom.protocol.limits import MAX_SOCKET_MESSAGE

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
    # A caller may wait for an hour, and its machine may go without a word: the system notices within hours.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
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


class _Server(uvicorn.Server):
    """uvicorn inside our own TaskGroup, which handles the signals."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.server_state = Connections()

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


def _config(
    app: App, context: ssl.SSLContext | None = None, *, sockets: bool = False
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ssl_context_factory=(lambda _config, _default: context) if context else None,
        http=DeadlineProtocol,
        ws=BoundedWebSocket if sockets else "none",
        ws_max_size=MAX_SOCKET_MESSAGE,
        ws_ping_interval=STREAM_BEAT,
        ws_ping_timeout=SOCKET_PONG,
        ws_per_message_deflate=False,
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
        self._server = _Server(_config(app, context, sockets=True))
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
        self._state = Connections()

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
