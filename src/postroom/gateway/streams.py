"""A passage that reads and writes streams, for protocols that are not taken apart here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from postroom.gateway.port import DEADLINES, Deadlines
from postroom.gateway.visit import Visit

StreamPassage = Callable[[Visit, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one visit to its end; what came after the preface is in the reader already."""

LIMIT = 64 * 1024


class _CountingReader(asyncio.StreamReader):
    """Counts what comes from the sandbox."""

    def __init__(self, visit: Visit) -> None:
        super().__init__(limit=LIMIT)
        self._visit = visit

    def feed_data(self, data: bytes) -> None:  # ty: ignore[incompatible-method-override]
        self._visit.passed += len(data)
        super().feed_data(data)


class _CountingWriter(asyncio.StreamWriter):
    """Counts what goes to the sandbox."""

    visit: Visit

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.visit.passed += len(data)
        super().write(data)


class Streamed:
    """A `StreamPassage` as a passage of the door.

    Args:
        passage: serves the visits.
        deadlines: for the last bytes.
    """

    def __init__(self, passage: StreamPassage, deadlines: Deadlines = DEADLINES) -> None:
        self._passage = passage
        self._deadlines = deadlines

    async def __call__(self, visit: Visit, transport: asyncio.Transport, first: bytes) -> str:
        """Serve a visit to its end; "" is how it ended."""
        loop = asyncio.get_running_loop()
        reader = _CountingReader(visit)
        protocol = asyncio.StreamReaderProtocol(reader)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        writer = _CountingWriter(transport, protocol, reader, loop)
        writer.visit = visit
        if transport.is_closing():
            reader.feed_eof()
        transport.resume_reading()
        if first:
            reader.feed_data(first)
        await self._passage(visit, reader, writer)
        await flush(writer, self._deadlines.flush)
        return ""


async def flush(writer: asyncio.StreamWriter, deadline: float) -> None:
    """Close when what is buffered was taken, or at the deadline: `close` alone waits for ever for a reader."""
    writer.close()
    try:
        async with asyncio.timeout(deadline):
            await writer.wait_closed()
    except (TimeoutError, OSError):
        cut(writer.transport)


def cut(transport: asyncio.WriteTransport) -> None:
    """Abort, if anything is left to abort: asyncio fails to do so where `close` has done all its work."""
    if not transport.is_closing():
        transport.abort()
        return
    try:
        left = transport.get_write_buffer_size()
    except (
        AttributeError
    ):  # of TLS, closed twice: asyncio's transport has let go of all that it had
        return
    if left:
        transport.abort()
