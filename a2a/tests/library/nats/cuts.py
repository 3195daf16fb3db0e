"""A way to a server that can be cut: what is connected through it loses its connection, and may connect again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


class Way:
    """Forwards connections to a server.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._host, self._port = str(place.hostname), int(place.port or 0)
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    def cut(self) -> None:
        """End every connection at once; what is on its way is lost."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Way]:
        """Forward for the time of the block."""
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, further = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, further}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass_on(reader, further))
                group.create_task(_pass_on(there, writer))
        finally:
            self._writers -= {writer, further}


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()
