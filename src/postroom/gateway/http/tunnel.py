"""A CONNECT tunnel: opened for TLS to the host that the request named, and for nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import h11

from postroom.errors import Forbidden, ProtocolViolation
from postroom.gateway.http.client_hello import ClientHello
from postroom.gateway.http.exchange import Timeouts
from postroom.gateway.http.request_record import RequestRecord
from postroom.http.connection import CHUNK, HttpConnection

HELLO_TIMEOUT = 15.0
"""Seconds for a whole ClientHello."""


class Tunnel:
    """Passes bytes between the sandbox and a host, once the sandbox has begun TLS with that host.

    Args:
        timeouts: `answer` is how long the tunnel may stay silent.
    """

    def __init__(
        self,
        near: HttpConnection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        timeouts: Timeouts,
    ) -> None:
        self._near = near
        self._reader = reader
        self._writer = writer
        self._timeouts = timeouts
        self._out = 0
        self._in = 0

    async def run(self, host: str, record: RequestRecord) -> None:
        """Open the tunnel and pass bytes until it ends.

        Raises:
            PostroomError: no TLS, or TLS for another host; nothing was passed on.
        """
        try:
            first = await self._first(host)
        except ProtocolViolation as error:
            self._writer.transport.abort()
            refused = Forbidden(error.message)
            record.denied(refused)
            raise refused from error
        except BaseException:
            self._writer.transport.abort()
            record.answered(0, 0, "the tunnel ended before TLS began")
            raise
        reason = "the tunnel was cut"
        try:
            reason = await self._pump(first)
        finally:
            self._writer.transport.abort()
            record.answered(200, self._out + self._in, reason)

    async def _first(self, host: str) -> bytes:
        """The ClientHello, and what came with it."""
        near = self._near
        await near.next_event(self._timeouts.head)  # the end of the CONNECT
        await near.send(
            h11.Response(status_code=200, reason=b"Connection established", headers=[]),
            self._timeouts.body,
        )
        hello = ClientHello()
        name = hello.feed(near.http.trailing_data[0])
        try:
            async with asyncio.timeout(HELLO_TIMEOUT):
                while name is None:
                    data = await near.reader.read(CHUNK)
                    if not data:
                        raise ProtocolViolation("the tunnel ended before TLS began")
                    name = hello.feed(data)
        except TimeoutError as error:
            raise ProtocolViolation("no ClientHello in time") from error
        if name != host:
            raise ProtocolViolation(f"the tunnel is for {host}, TLS in it for {name}")
        return hello.raw

    async def _pump(self, first: bytes) -> str:
        """Pass bytes until both sides have ended; returns why it ended otherwise, else ""."""
        near = self._near
        self._out += len(first)
        self._writer.write(first)
        try:
            async with asyncio.timeout(self._timeouts.answer) as idle, asyncio.TaskGroup() as ways:
                ways.create_task(self._copy(near.reader, self._writer, idle, self._sent))
                ways.create_task(self._copy(self._reader, near.writer, idle, self._received))
        except TimeoutError:
            return "nothing passed for too long"
        return ""

    def _sent(self, size: int) -> None:
        self._out += size

    def _received(self, size: int) -> None:
        self._in += size

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        idle: asyncio.Timeout,
        count: Callable[[int], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            while (data := await reader.read(CHUNK)) and not writer.transport.is_closing():
                writer.write(data)
                count(len(data))
                await writer.drain()
                idle.reschedule(loop.time() + self._timeouts.answer)
            if writer.can_write_eof():
                writer.write_eof()
        except OSError:  # the other direction ends with it
            self._writer.transport.abort()
            self._near.abort()
