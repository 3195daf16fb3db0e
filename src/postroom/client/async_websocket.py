"""A WebSocket to the control plane, for tasks (as `client.websocket`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Self
from urllib.parse import urlencode, urlsplit

from postroom.client.locate import ServerAddress
from postroom.client.rules import CONNECT_TIMEOUT, Query
from postroom.client.websocket import SocketEnded, handshake, place, refused
from postroom.http.client import Streams
from postroom.http.connection import CHUNK
from postroom.http.stream_socket import SocketRefused, StreamSocket
from postroom.http.unix import short_address
from postroom.protocol.sockets import Code


class AsyncWebSocket(StreamSocket):
    """An open connection: one task may receive while another sends. Close it with `abort`."""

    @classmethod
    async def to(
        cls, server: ServerAddress, url: str, query: Query, headers: Mapping[str, str]
    ) -> Self:
        """As `WebSocket.connect`."""

        async def dial() -> Streams:
            with handshake(server, url) as tls:
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    if not server.socket:
                        return await asyncio.open_connection(*place(url), limit=CHUNK, **tls)
                    with short_address(Path(server.socket)) as address:
                        streams = await asyncio.open_unix_connection(address, limit=CHUNK)
                try:
                    server.check(streams[1].get_extra_info("socket").fileno())
                except BaseException:
                    streams[1].transport.abort()
                    raise
                return streams

        parts = urlsplit(url)
        target = parts.path + (f"?{urlencode(query)}" if query else "")
        try:
            return await cls.connect("the post room", dial, parts.netloc, target, headers.items())
        except SocketRefused as error:
            raise refused(error.refusal) from None

    def close(self) -> None:
        """Close it."""
        self._writer.write(self._side.closing(Code.DONE))
        self._writer.close()

    async def received(self) -> str | bytes:
        """The next message.

        Raises:
            SocketEnded: there will be none.
            PostroomError: as `StreamSocket.receive`.
        """
        message = await self.receive()
        if message is None:
            raise SocketEnded(*(self.closed or (1006, "")))
        return message
