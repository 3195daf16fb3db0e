"""The sandbox's one door, seen from inside: loopback ports whose connections lead to the gateway.

NATS and HTTP clients want a plain TCP address; the gateway is a Unix socket or, for a sandbox on another machine,
an address that speaks TLS. Each connection to a door opens one to the gateway, says in a preface line what it
speaks and whose it is, and is then pumped both ways (docs/architecture.md, The two walls).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Self

from postroom.errors import InvalidInput
from postroom.http.client import Dial, Streams, by_tcp
from postroom.http.wire import CHUNK
from postroom.observe import get_logger
from postroom.protocol.preface import Preface

CONNECTIONS = 32
"""Connections through one door at once; more are closed."""

CONNECT_TIMEOUT = 5.0

_log = get_logger(__name__)


def by_tls(address: str, ca: str) -> Dial:
    """To the gateway at `address` (`host:port`), if it shows a certificate for that host under `ca` (PEM).

    Args:
        address: where it is.
        ca: what to trust; "" for what this system trusts.

    Raises:
        InvalidInput: the address is malformed, or there is no certificate in `ca`.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit():
        raise InvalidInput(f"the gateway's address {address!r} is not host:port")
    try:
        context = ssl.create_default_context(cadata=ca or None)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidInput("there is no certificate in what the gateway is trusted by") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return by_tcp(host, int(port), context)


def with_preface(dial: Dial, preface: Preface) -> Dial:
    """The same way, with the line that says what is spoken on it and whose it is."""

    async def open_connection() -> Streams:
        reader, writer = await dial()
        writer.write(preface.encode())
        return reader, writer

    return open_connection


class Door:
    """A loopback port for one protocol; an asynchronous context manager that is open inside its block.

    Args:
        dial: the way to the gateway.
        preface: says which protocol is spoken.
        port: the loopback port, 0 for any free one.
    """

    def __init__(self, dial: Dial, preface: Preface, port: int = 0) -> None:
        self._dial = with_preface(dial, preface)
        self._wanted = port
        self._protocol = preface.protocol
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The loopback port."""
        if self._server is None:
            raise RuntimeError("the door is not open")
        return int(self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", self._wanted, limit=CHUNK
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._connections:
            task.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=CONNECT_TIMEOUT)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        try:
            await self._relay(reader, writer)
        except OSError as error:
            _log.debug("a connection through the %s door ended: %s", self._protocol, error)
        except asyncio.CancelledError:
            # The door closes; asyncio's server would report the cancellation as an error.
            _log.debug("a connection was cut with its door")
        finally:
            self._connections.discard(task)
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            far_reader, far_writer = await self._dial()
        try:
            ways = [
                asyncio.ensure_future(_pump(reader, far_writer)),
                asyncio.ensure_future(_pump(far_reader, writer)),
            ]
            try:
                await asyncio.gather(*ways)
            finally:
                for way in ways:
                    way.cancel()
        finally:
            far_writer.close()
            with contextlib.suppress(OSError):
                await far_writer.wait_closed()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction, until its end, which is passed on; `drain` holds the reader back.

    TLS has no end of one direction alone: there it ends both.
    """
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:
        writer.close()
