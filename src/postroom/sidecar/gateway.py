"""The sandbox's one door, seen from inside: the gateway, a Unix socket or an address that speaks TLS.

Each connection to it says in a preface line what it speaks and whose it is (docs/architecture.md, The two walls). The
sidecar's own NATS and HTTP connections are opened here. The agent has a loopback port for its way out: its programs
want a plain TCP address.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import Self, cast

from postroom.bus.address import BusAddress
from postroom.errors import InvalidInput
from postroom.http.client import Streams
from postroom.http.connection import CHUNK
from postroom.observe import get_logger
from postroom.protocol.preface import Preface

GATEWAY_HOST = "postroom"
"""Name of the bus and the control plane where the gateway is the only way to them."""

CONNECTIONS = 32
"""Connections through one door at once; more are closed."""

CONNECT_TIMEOUT = 5.0

_log = get_logger(__name__)


Factory = Callable[[], asyncio.Protocol]
Opened = tuple[asyncio.BaseTransport, asyncio.BaseProtocol]
Connector = Callable[[Factory], Awaitable[Opened]]
"""Opens a connection to the gateway for the protocol that the factory makes."""


def by_socket(path: str) -> Connector:
    """To the gateway's Unix socket at `path`."""
    return lambda factory: asyncio.get_running_loop().create_unix_connection(factory, path)


def by_tls(address: str, ca: str) -> Connector:
    """To the gateway at `address` (`host:port`), if it shows a certificate for that host under `ca` (PEM).

    Args:
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

    def connect(factory: Factory) -> Awaitable[Opened]:
        loop = asyncio.get_running_loop()
        return loop.create_connection(factory, host, int(port), ssl=context)

    return connect


def with_preface(connector: Connector, protocol: str, token: str) -> Connector:
    """The same way, with the line that says what is spoken on it and whose it is."""
    line = Preface(protocol, token).encode()

    async def connect(factory: Factory) -> Opened:
        transport, made = await connector(factory)
        cast("asyncio.WriteTransport", transport).write(line)
        return transport, made

    return connect


def bus_behind(connector: Connector, token: str) -> BusAddress:
    """The bus, as the worker with that token reaches it through the gateway."""
    connect = with_preface(connector, "nats", token)
    return BusAddress((f"nats://{GATEWAY_HOST}",), dial=lambda factory, _server: connect(factory))


async def streams(connector: Connector) -> Streams:
    """A connection as `asyncio.open_connection` gives one."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(CHUNK, loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await connector(lambda: protocol)
    plain = cast("asyncio.WriteTransport", transport)
    return reader, asyncio.StreamWriter(plain, protocol, reader, loop)


class EgressRelay:
    """A loopback port whose connections are pumped both ways; it is open inside its `async with` block.

    Args:
        way: to the gateway, with its preface.
        port: the loopback port, 0 for any free one.
    """

    def __init__(self, connector: Connector, port: int = 0) -> None:
        self._connector = connector
        self._wanted = port
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
            _log.debug("a connection through a door ended: %s", error)
        except asyncio.CancelledError:
            # The door closes; asyncio's server would report the cancellation as an error.
            _log.debug("a connection was cut with its door")
        finally:
            self._connections.discard(task)
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(CONNECT_TIMEOUT):
            far_reader, far_writer = await streams(self._connector)
        try:
            ways = [
                asyncio.ensure_future(_pump(reader, far_writer)),
                asyncio.ensure_future(_pump(far_reader, writer)),
            ]
            try:
                await asyncio.gather(*ways)
            finally:
                for connector in ways:
                    connector.cancel()
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
