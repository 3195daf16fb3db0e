"""HTTP listeners: the ports for people, the owner's socket, and single connections for the doors of workers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Generator
from functools import partial
from pathlib import Path

import uvicorn

from postroom.control.http_protocol import Connections, DeadlineProtocol, most_near
from postroom.control.org_router import OWNER, WORKER, App, Receive, Scope, Send
from postroom.control.websockets import BoundedWebSocket
from postroom.errors import InvalidInput, PortTaken, StateUnwritable
from postroom.http.unix import bind_unix, peer_uid
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
            remedy=f"choose another: {'--listen ADDR:PORT' if tls else '--port N'}, or 0 for any free one",
        ) from error
    return listener


def bind_near(path: Path) -> socket.socket:
    """The owner's socket at `path`, which does not listen yet.

    Raises:
        StateUnwritable: there can be no socket.
    """
    try:
        return bind_unix(path)
    except OSError as error:
        raise StateUnwritable(
            f"cannot make the socket {path}: {error.strerror or error}",
            remedy="choose another state folder with --state DIR; not every system takes a long path",
        ) from error


class NearProtocol(DeadlineProtocol):
    """A connection to the owner's socket: only the owner and root may have one."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Cut the connection of anybody else."""
        super().connection_made(transport)
        try:
            uid = peer_uid(transport.get_extra_info("socket").fileno())
        except OSError:  # it has gone
            uid = -1
        if uid not in (0, os.geteuid()):
            transport.abort()


class _Server(uvicorn.Server):
    """uvicorn inside our own TaskGroup, which handles the signals."""

    server_state: Connections

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        super().__init__(config)
        self.server_state = connections

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, with a deadline for the TLS handshake: `DeadlineProtocol` begins after it."""
        context = self.config.ssl
        loop = asyncio.get_running_loop()
        self.servers: list[asyncio.Server] = []
        handshake = HANDSHAKE_TIMEOUT if context else None
        for listener in sockets or []:
            near = listener.family == socket.AF_UNIX
            serve = partial(
                NearProtocol if near else DeadlineProtocol,
                config=self.config,
                server_state=self.server_state,
                app_state={},
            )
            # asyncio accepts so many in one turn, before any of them is counted: they must not be all descriptors.
            at_once = max(8, min(self.config.backlog, self.server_state.most // 16))
            if near:
                made = loop.create_unix_server(serve, sock=listener, backlog=at_once)
            else:
                made = loop.create_server(
                    serve,
                    sock=listener,
                    ssl=context,
                    ssl_handshake_timeout=handshake,
                    backlog=at_once,
                )
            self.servers.append(await made)
            listener.listen(self.config.backlog)  # the system's queue may be longer
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
        connections: of this listener and of those that share its limit.
    """

    def __init__(
        self,
        app: App,
        listener: socket.socket,
        context: ssl.SSLContext | None = None,
        connections: Connections | None = None,
    ) -> None:
        config = _config(app, context, sockets=True)
        self._server = _Server(config, connections or Connections())
        self._listener = listener

    @classmethod
    def near(cls, app: App, listener: socket.socket) -> HttpListener:
        """Serves the owner on a socket of `bind_near`; its connections are not among those of the ports."""

        async def as_owner(scope: Scope, receive: Receive, send: Send) -> None:
            scope[OWNER] = True
            await app(scope, receive, send)

        return cls(as_owner, listener, connections=Connections(most_near()))

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
