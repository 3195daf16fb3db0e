"""A WebSocket on asyncio's streams: to a server in the sandbox, to the post room."""

from __future__ import annotations

import asyncio
from typing import Self

from postroom.errors import BusDisconnected
from postroom.http.client import Dial, Headers, faults
from postroom.http.connection import CHUNK
from postroom.http.websocket import ClientSide, Refusal
from postroom.protocol.limits import MAX_SOCKET_MESSAGE

OPENING = 10.0
"""Seconds for a server to open it or to refuse."""

SENDING = 30.0
"""Seconds for a server to take what is sent."""

SILENCE = 75.0
"""Seconds without a byte after which the server is taken for dead; execd and the post room ping every 30 or less."""


class SocketRefused(Exception):
    """The server has answered with something else than a WebSocket."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"refused with {refusal.status}")
        self.refusal = refusal


class StreamSocket:
    """An open WebSocket; made by `connect`. One task may receive while another sends."""

    def __init__(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._name = name
        self._reader = reader
        self._writer = writer
        self._side = ClientSide(MAX_SOCKET_MESSAGE)

    @classmethod
    async def connect(
        cls, name: str, dial: Dial, host: str, target: str, headers: Headers = ()
    ) -> Self:
        """Open a WebSocket at `target`.

        Args:
            name: of the server in errors.

        Raises:
            SocketRefused: the server does not open it.
            BusDisconnected: the server is out of reach, or the connection broke.
            RequestTimeout: it did not answer in time.
            ProtocolViolation: the answer is not HTTP.
        """
        with faults(name):
            async with asyncio.timeout(OPENING):
                made = cls(name, *await dial())
                try:
                    await made._open(host, target, headers)
                except BaseException:
                    made.abort()
                    raise
        return made

    @property
    def closed(self) -> tuple[int, str] | None:
        """Code and reason with which the server has closed it."""
        return self._side.closed

    async def send(self, data: str | bytes) -> None:
        """Send a message, and wait until there is room for the next.

        Raises:
            BusDisconnected: the connection is closed, or broke.
            RequestTimeout: the server takes nothing any more.
        """
        message = self._side.message(data)
        if not message:
            raise BusDisconnected(f"{self._name} has closed the connection")
        await self._push(message)

    async def receive(self) -> str | bytes | None:
        """The next message, None when the server has closed it.

        Raises:
            BusDisconnected: the connection broke.
            RequestTimeout: the server has fallen silent.
            ProtocolViolation: what came is no WebSocket, or too large.
        """
        while not self._side.messages:
            if self._side.closed is not None:
                return None
            with faults(self._name):
                async with asyncio.timeout(SILENCE):
                    await self._more()
        return self._side.messages.popleft()

    def abort(self) -> None:
        """Close it without a word; idempotent."""
        self._writer.transport.abort()

    async def _open(self, host: str, target: str, headers: Headers) -> None:
        await self._push(self._side.opening(host, target, headers))
        while not self._side.accepted:
            await self._more()
            refusal = self._side.refusal
            if refusal is not None and refusal.whole:
                raise SocketRefused(refusal)

    async def _more(self) -> None:
        """Take what comes next."""
        data = await self._reader.read(CHUNK)
        if not data:
            raise BusDisconnected(f"{self._name} has broken the connection off")
        await self._push(self._side.take(data))

    async def _push(self, data: bytes) -> None:
        if not data:
            return
        with faults(self._name):
            if self._writer.transport.is_closing():
                raise ConnectionResetError("the connection has ended")
            self._writer.write(data)
            async with asyncio.timeout(SENDING):
                await self._writer.drain()
