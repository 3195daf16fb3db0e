"""A proxy that works with streams, for protocols that it does not take apart.

`FirstLine` reads the first line of a connection through a door without taking anything that comes after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from postroom.errors import PostroomError, ProtocolViolation
from postroom.gateway.connection import GatewayConnection
from postroom.gateway.port import DEADLINES, DoorDeadlines
from postroom.protocol.preface import MAX_BYTES

StreamServer = Callable[
    [GatewayConnection, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]
]
"""Serves one connection to its end; the reader begins with what came after the preface."""

LIMIT = 64 * 1024


class Silence(PostroomError):
    """A connection ended before it said anything, as when a sandbox tries its door: nothing to refuse."""


class FirstLine(asyncio.Protocol):
    """Reads the first line of a connection, and not a byte more than has arrived with it.

    Attributes:
        line: the line, and what arrived after it.
    """

    def __init__(self, enter: Callable[[asyncio.Transport, FirstLine], None]) -> None:
        self._enter = enter
        self._data = b""
        self._transport: asyncio.Transport
        self.line: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of asyncio."""
        self._transport = cast("asyncio.Transport", transport)
        self._enter(self._transport, self)

    def data_received(self, data: bytes) -> None:
        """Of asyncio."""
        self._data += data
        end = self._data.find(b"\n", 0, MAX_BYTES) + 1
        if self.line.done() or (not end and len(self._data) < MAX_BYTES):
            return
        self._transport.pause_reading()
        if end:
            self.line.set_result((self._data[:end], self._data[end:]))
            self._data = b""
        else:
            self._end(ProtocolViolation("no preface line"))

    def eof_received(self) -> bool:
        """Of asyncio."""
        self.connection_lost(None)
        return self._transport.get_extra_info("sslcontext") is None  # TLS ends both ways at once

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        """Of asyncio."""
        if not self.line.done():
            said = (
                ProtocolViolation("no preface line") if self._data else Silence("it said nothing")
            )
            self._end(said)

    def _end(self, error: PostroomError) -> None:
        self.line.set_exception(error)
        self.line.exception()  # a closed door leaves nobody to await it


class _CountingReader(asyncio.StreamReader):
    """Counts what comes from the sandbox."""

    def __init__(self, conn: GatewayConnection) -> None:
        super().__init__(limit=LIMIT)
        self._conn = conn

    def feed_data(self, data: bytes) -> None:  # ty: ignore[incompatible-method-override]
        self._conn.passed += len(data)
        super().feed_data(data)


class _CountingWriter(asyncio.StreamWriter):
    """Counts what goes to the sandbox."""

    conn: GatewayConnection

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.transport.is_closing():  # uvloop's transport would raise no OSError
            raise ConnectionResetError("the sandbox has hung up")
        self.conn.passed += len(data)
        super().write(data)


class StreamProxy:
    """A `StreamServer` as a proxy of the door."""

    def __init__(self, proxy: StreamServer, deadlines: DoorDeadlines = DEADLINES) -> None:
        self._proxy = proxy
        self._deadlines = deadlines

    async def __call__(
        self, conn: GatewayConnection, transport: asyncio.Transport, first: bytes
    ) -> str:
        """Serve a connection to its end; returns "" as how it ended."""
        loop = asyncio.get_running_loop()
        reader = _CountingReader(conn)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        writer = _CountingWriter(transport, protocol, reader, loop)
        writer.conn = conn
        if transport.is_closing():
            reader.feed_eof()
        else:
            transport.resume_reading()
        if first:
            reader.feed_data(first)
        await self._proxy(conn, reader, writer)
        await flush(writer, self._deadlines.flush)
        return ""


async def flush(writer: asyncio.StreamWriter, deadline: float) -> None:
    """Close once the peer has taken what is buffered, or at the deadline: `close` alone waits for ever for a reader."""
    writer.close()
    try:
        async with asyncio.timeout(deadline):
            await writer.wait_closed()
    except (TimeoutError, OSError):
        cut(writer.transport)


def cut(transport: asyncio.WriteTransport) -> None:
    """Abort what is left: asyncio's own `abort` fails where `close` has done all its work."""
    if not transport.is_closing():
        transport.abort()
        return
    try:
        left = transport.get_write_buffer_size()
    except AttributeError:  # TLS, closed twice: asyncio's transport holds nothing any more
        return
    if left:
        transport.abort()
