"""The way to a post room of this machine: the unix socket in its state folder.

A port belongs to whoever takes it first, also after a post room was killed. Nobody else can take the place of a socket
in a folder that is closed to others, and before a key is sent the kernel says whose process listens there.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from weakref import WeakSet

import httpx2

from postroom.client.locate import ServerAddress
from postroom.errors import ProtocolViolation
from postroom.http.unix import peer_uid, short_address

NOBODY: Any = {"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), "trust_env": False}
"""There is no TLS over a socket of this machine."""


class NearTransport(httpx2.HTTPTransport):
    """Connections to the socket of `server`, each to a process of its owner.

    Raises:
        NotRunning: its folder has gone.
    """

    def __init__(self, server: ServerAddress) -> None:
        self._server = server
        self._address = ExitStack()
        self._lock = threading.Lock()
        self._closed = False
        self._streams: WeakSet[Any] = WeakSet()
        super().__init__(uds=_entered(self._address, server), **NOBODY)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request, over a new connection once its peer is known."""
        request.extensions = {**request.extensions, "trace": self._made}
        return super().handle_request(request)

    def close(self) -> None:
        """Close all connections, also those that another thread is making now, of which the pool does not know."""
        with self._lock:
            self._closed = True
        super().close()
        for stream in list(self._streams):
            stream.close()
        self._address.close()

    def _made(self, event: str, about: Mapping[str, Any]) -> None:
        """Told by httpx2 of each step, a new connection before anything is sent over it."""
        if event != "connection.connect_unix_socket.complete":
            return
        stream = about["return_value"]
        try:
            check_owner(stream.get_extra_info("socket"), self._server)
            with self._lock:
                if self._closed:
                    raise self._server.silent()
                self._streams.add(stream)
        except BaseException:
            stream.close()
            raise


class AsyncNearTransport(httpx2.AsyncHTTPTransport):
    """The same for tasks."""

    def __init__(self, server: ServerAddress) -> None:
        self._server = server
        self._address = ExitStack()
        super().__init__(uds=_entered(self._address, server), **NOBODY)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """As `NearTransport.handle_request`."""
        request.extensions = {**request.extensions, "trace": self._made}
        return await super().handle_async_request(request)

    async def aclose(self) -> None:
        """Close all connections."""
        await super().aclose()
        self._address.close()

    async def _made(self, event: str, about: Mapping[str, Any]) -> None:
        if event == "connection.connect_unix_socket.complete":
            stream = about["return_value"]
            try:
                check_owner(stream.get_extra_info("socket"), self._server)
            except BaseException:
                await stream.aclose()
                raise


def _entered(address: ExitStack, server: ServerAddress) -> str:
    try:
        return address.enter_context(short_address(Path(server.socket)))
    except OSError as error:
        raise server.silent() from error


def dial(server: ServerAddress, timeout: float) -> socket.socket:
    """A connection to the socket of `server`.

    Raises:
        NotRunning: nobody listens there.
        ProtocolViolation: a process of another user does.
    """
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(timeout)
        with short_address(Path(server.socket)) as address:
            link.connect(address)
        check_owner(link, server)
    except OSError as error:
        link.close()
        raise server.silent() from error
    except BaseException:
        link.close()
        raise
    return link


def check_owner(link: socket.socket, server: ServerAddress) -> None:
    """Raise ProtocolViolation unless a process of the owner of `server` is at the other end of `link`."""
    if (uid := peer_uid(link.fileno())) != server.owner:
        raise ProtocolViolation(
            f"what listens at {server.socket} is not the post room: it belongs to the user with the uid {uid}",
            remedy=f"see who can write {Path(server.socket).parent}, then start the post room again",
        )
