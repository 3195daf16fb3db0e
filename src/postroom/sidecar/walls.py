"""The two walls from inside: the connections to the gateway, and the test of the sandbox, the sidecar's first act.

The first line of each connection, its preface, names its protocol and its worker's token (docs/architecture.md, The two
walls). The sidecar opens its own NATS and HTTP connections here, by a Unix socket or by an address that speaks TLS. The
agent's programs want a plain TCP address for the outside: that is the port of the `EgressRelay`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import resource
import ssl
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from postroom.bus.address import BusAddress
from postroom.errors import EnvironmentFault, InvalidInput
from postroom.http.client import Streams
from postroom.http.connection import CHUNK
from postroom.observe import get_logger
from postroom.protocol.preface import Preface
from postroom.sandbox import selftest
from postroom.sandbox.selftest import Canaries, WallReport

GATEWAY_HOST = "postroom"
"""Name of the bus and the control plane where the gateway is the only way to them."""

CONNECTIONS = 32
"""Connections through one relay at a time; further ones are closed."""

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
    """To the gateway at `address` (`host:port`), if it shows a certificate for that host.

    Args:
        ca: certificates (PEM) to trust; "" for those of this system.

    Raises:
        InvalidInput: the address is malformed, or `ca` holds no certificate.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit():
        raise InvalidInput(f"the gateway's address {address!r} is not host:port")
    try:
        context = ssl.create_default_context(cadata=ca or None)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidInput("gateway_ca holds no certificate (PEM)") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3

    def connect(factory: Factory) -> Awaitable[Opened]:
        loop = asyncio.get_running_loop()
        return loop.create_connection(factory, host, int(port), ssl=context)

    return connect


def with_preface(connector: Connector, protocol: str, token: str) -> Connector:
    """The same, with the preface as the first line of each connection."""
    line = Preface(protocol, token).encode()

    async def connect(factory: Factory) -> Opened:
        transport, made = await connector(factory)
        cast("asyncio.WriteTransport", transport).write(line)
        return transport, made

    return connect


def bus_behind(connector: Connector, token: str) -> BusAddress:
    """The bus's address for the worker with that token, through the gateway."""
    connect = with_preface(connector, "nats", token)
    return BusAddress((f"nats://{GATEWAY_HOST}",), dial=lambda factory, _server: connect(factory))


async def streams(connector: Connector) -> Streams:
    """A connection as a pair of streams, like `asyncio.open_connection`'s."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(CHUNK, loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await connector(lambda: protocol)
    plain = cast("asyncio.WriteTransport", transport)
    return reader, asyncio.StreamWriter(plain, protocol, reader, loop)


class EgressRelay:
    """A loopback port whose connections go on to the gateway; open inside its `async with` block.

    Args:
        connector: opens connections to the gateway, preface included.
        port: 0 for any free one.
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
            raise RuntimeError("the egress relay is not open")
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
            _log.debug("a connection through the egress relay ended: %s", error)
        except asyncio.CancelledError:
            # The relay closes; asyncio's server would report the cancellation as an error.
            _log.debug("a connection was cut when the egress relay closed")
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
    """Copy one direction up to its end, and pass the end on. TLS cannot end one direction alone: there it ends both."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
    else:
        writer.close()


BREACHED = 86
"""Exit code of a sidecar that found a hole in its wall which the provider does not state."""

NO_WALL = "none"

_PR_SET_DUMPABLE = 4  # prctl(2)


@dataclass(frozen=True, slots=True)
class WallCheck:
    """The result of the wall's self-test.

    Attributes:
        report: every canary; None where there were none.
        claimed: the level that the sandbox provider claims.
        holes: kinds of canaries that the provider states as reachable.
    """

    report: WallReport | None
    claimed: str
    holes: tuple[str, ...] = ()

    @property
    def breaches(self) -> tuple[str, ...]:
        """The canaries that the sidecar reached against the claim; () where the provider claims no wall."""
        if self.report is None or self.claimed in {"", NO_WALL}:
            return ()
        return self.report.unexplained(self.holes)

    @property
    def breached(self) -> bool:
        """Whether there are breaches."""
        return bool(self.breaches)

    @property
    def level(self) -> str:
        """The level that the test found: the claimed one unless it was breached; "" without a test."""
        if self.report is None:
            return ""
        return NO_WALL if self.breached else self.claimed

    def event(self) -> dict[str, Any]:
        """The worker's first event."""
        report = self.report.to_dict() if self.report else None
        return {"type": "wall", "report": report, "level": self.level}


def examine(canaries: Mapping[str, Any], claimed: str, holes: tuple[str, ...] = ()) -> WallCheck:
    """Try every canary; takes half a second if one is silent."""
    if not canaries:
        return WallCheck(None, claimed, holes)
    return WallCheck(selftest.run(Canaries.from_json(json.dumps(canaries))), claimed, holes)


def harden() -> None:
    """Forbid tracing, reading through procfs, and core files of this process, not of those that it starts.

    Otherwise an agent could read the token out of `/proc/<sidecar>/environ` or the sidecar's memory. That keeps secrets
    out of transcripts and is not a wall: sidecar and agent are one trust domain.

    Raises:
        EnvironmentFault: the kernel refused.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if sys.platform != "linux":
        return  # macOS asks for an entitlement before one process may read another
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise EnvironmentFault(f"the sidecar cannot protect its memory: {reason}")
