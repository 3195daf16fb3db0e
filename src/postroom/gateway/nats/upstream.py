"""Dialling a server of the bus for one connection, up to its greeting."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

from postroom.bus.address import BusAddress
from postroom.errors import BusDisconnected, ProtocolViolation
from postroom_a2a.bounds import MAX_SERVER_LINE
from postroom_a2a.nats.info import read_info


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server that has greeted; its transport is paused.

    Attributes:
        info: the server's INFO document.
        rest: what it said after that.
        place: its address.
        alone: whether the bus has no other server.
    """

    transport: asyncio.Transport
    info: dict[str, Any]
    rest: bytes
    place: str
    alone: bool


class _Greeting(asyncio.Protocol):
    """Reads INFO, and pauses reading."""

    def __init__(self) -> None:
        self._data = b""
        self.transport: asyncio.Transport
        self.line: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Of asyncio."""
        self._data += data
        line, end, rest = self._data.partition(b"\r\n")
        if self.line.done() or (not end and len(self._data) < MAX_SERVER_LINE):
            return
        self.transport.pause_reading()
        if end and line.startswith(b"INFO "):
            self.line.set_result((line[5:], rest))
        else:
            self.line.set_exception(ProtocolViolation("the bus does not begin with INFO"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Of asyncio."""
        if not self.line.done():
            self.line.set_exception(BusDisconnected(f"the bus hung up: {exc or ''}"))


async def dial(address: Callable[[], BusAddress], deadline: float, *, last: str = "") -> Upstream:
    """Connect to one of the servers, in turn until one greets.

    Args:
        address: the bus's, asked anew each time.
        deadline: seconds for all servers together.
        last: a server to be tried behind the others.

    Raises:
        BusDisconnected: no server greets in time.
    """
    where = address()
    failures: list[str] = []
    try:
        async with asyncio.timeout(deadline):
            for place in _shuffled(where.servers, last):
                try:
                    # A server that takes the connection and stays silent leaves time for the others.
                    async with asyncio.timeout(deadline / len(where.servers)):
                        return await _greeted(place, where)
                except (OSError, ProtocolViolation, BusDisconnected) as error:
                    failures.append(str(error) or type(error).__name__)
    except TimeoutError:
        failures.append("not in time")
    raise BusDisconnected(f"no server of the bus answers in time: {'; '.join(failures)}")


def _shuffled(servers: Sequence[str], last: str) -> list[str]:
    return sorted(random.sample(servers, len(servers)), key=lambda place: place == last)


async def _greeted(place: str, where: BusAddress) -> Upstream:
    parts = urlsplit(place)
    host, port = parts.hostname or "", parts.port or 4222
    loop = asyncio.get_running_loop()
    name = (where.tls_name or host) if where.tls else None
    transport, greeting = await loop.create_connection(
        _Greeting, host, port, ssl=where.tls, server_hostname=name
    )
    try:
        line, rest = await greeting.line
        info = read_info(line)
        if info.get("tls_required") and where.tls is None:
            raise ProtocolViolation("the bus wants TLS, and none is set up")
        return Upstream(transport, info, rest, place, alone=len(where.servers) == 1)
    except BaseException:
        transport.abort()
        raise
