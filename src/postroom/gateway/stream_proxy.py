"""A proxy that works with streams, for protocols that it does not take apart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from postroom.gateway.connection import GatewayConnection
from postroom.gateway.port import DEADLINES, DoorDeadlines

StreamServer = Callable[
    [GatewayConnection, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]
]
"""Serves one connection to its end; the reader begins with what came after the preface."""

LIMIT = 64 * 1024


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
