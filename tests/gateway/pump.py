"""Bytes passed on as they are, to what another part of Postroom opens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from postroom.gateway.connection import GatewayConnection
from postroom.gateway.port import DEADLINES, DoorDeadlines
from postroom.gateway.stream_proxy import cut, flush

Dialer = Callable[[str], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Opens the upstream for the worker with the given uid."""

CHUNK = 64 * 1024


class Pump:
    """A `StreamServer` to one upstream.

    Args:
        dial: opens it.
        deadlines: for dialling and for the last bytes.
    """

    def __init__(self, dial: Dialer, deadlines: DoorDeadlines = DEADLINES) -> None:
        self._dial = dial
        self._deadlines = deadlines

    async def __call__(
        self, conn: GatewayConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pump both ways until both have ended."""
        async with asyncio.timeout(self._deadlines.dial):
            up_reader, up_writer = await self._dial(conn.spec.uid)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(_pump(reader, up_writer, conn))
                pumps.create_task(_pump(up_reader, writer, conn))
            async with asyncio.TaskGroup() as flushes:
                for end in (writer, up_writer):
                    flushes.create_task(flush(end, self._deadlines.flush))
        finally:
            cut(up_writer.transport)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, conn: GatewayConnection
) -> None:
    """Copy until the end or an error; then end the other direction.

    A slow receiver stops the reading (`drain`): memory stays flat, and the server cuts who is too slow.
    """
    try:
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()
