"""An answer as it came, and those of one stream in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from postroom_a2a.binding.frames import Response
from postroom_a2a.errors import RequestTimeout, StreamBroken

MAX_UNREAD = 4096
"""Frames of one stream that may lie unread."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer as it came.

    Attributes:
        response: that was read.
        sequence: of the frame in its stream of answers, 0 where the server does not count.
        lane: that the server announced, "" for none.
    """

    response: Response
    sequence: int
    lane: str


class StreamQueue:
    """The frames of one stream, in order, for one reader; bounded.

    A server that had to send frames again may have stored them in another order; those that count them come in
    their own.
    """

    def __init__(self) -> None:
        self._ready: deque[Answered] = deque()
        self._early: dict[int, Answered] = {}
        self._next = 1
        self._overrun = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, answered: Answered) -> None:
        """Take a frame; the one too many marks the stream as broken."""
        if len(self._ready) + len(self._early) >= MAX_UNREAD:
            self._overrun = True
        elif not answered.sequence:
            self._ready.append(answered)
        elif answered.sequence >= self._next:
            self._early[answered.sequence] = answered
            while (due := self._early.pop(self._next, None)) is not None:
                self._ready.append(due)
                self._next += 1
        if (self._ready or self._overrun) and self._waiter and not self._waiter.done():
            self._waiter.set_result(None)

    async def get(self, timeout: float) -> Answered:
        """The next frame.

        Raises:
            StreamBroken: more came than may lie unread, or frames are missing.
            RequestTimeout: none within `timeout` seconds.
        """
        if not self._ready:
            if self._overrun:
                raise StreamBroken(f"more than {MAX_UNREAD} frames of a stream lay unread")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout):
                    await self._waiter
            except TimeoutError:
                if self._early:
                    raise StreamBroken(f"frame {self._next} of a stream is missing") from None
                raise RequestTimeout(
                    f"nothing came within {round(timeout, 1):g} s",
                    remedy="the request is stored: is its server running, on this subject?",
                ) from None
            finally:
                self._waiter = None
            if not self._ready:
                return await self.get(timeout)
        return self._ready.popleft()
