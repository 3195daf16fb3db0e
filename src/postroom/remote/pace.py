"""How much one agent of other people may say: what it sends costs this process time, whatever it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager

from postroom.protocol.rates import Rate
from postroom_a2a.http.client_port import HttpExchange, HttpReply, HttpRequest

BYTES_A_SECOND = 256.0 * 1024
BURST = 16.0 * 1024 * 1024
"""Bytes of all answers of one agent in a second, and at once: two of the largest answers."""

PIECE = 256.0
"""Bytes that a piece of an answer counts at least: a chunk of one byte takes as long as a large one."""


class PacedReply:
    """An answer that is read no faster than its sender may say things; a `HttpReply`."""

    def __init__(self, reply: HttpReply, pause: Callable[[int], float]) -> None:
        self._reply = reply
        self._pause = pause
        self.status = reply.status
        self.headers = reply.headers

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body as it comes."""
        async with aclosing(self._reply.pieces()) as pieces:
            async for piece in pieces:
                yield piece
                if pause := self._pause(len(piece)):
                    await asyncio.sleep(pause)


class Pace:
    """What one agent may send, by all of its connections together."""

    def __init__(self, rate: float = BYTES_A_SECOND, burst: float = BURST) -> None:
        self._rate = Rate(rate, burst, 0.0)

    def slows(self, exchange: HttpExchange) -> HttpExchange:
        """`exchange`, whose answers are read at this pace."""

        @asynccontextmanager
        async def paced(request: HttpRequest) -> AsyncGenerator[HttpReply]:
            async with exchange(request) as reply:
                yield PacedReply(reply, self._pause)

        return paced

    def _pause(self, size: int) -> float:
        return self._rate.take(size + PIECE, asyncio.get_running_loop().time())
