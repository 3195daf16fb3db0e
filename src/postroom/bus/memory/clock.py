"""The time of a memory broker: the event loop's, or a test's own."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol

Cancel = Callable[[], None]


class Clock(Protocol):
    """Reads the time and calls back later."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def call_later(self, delay: float, callback: Callable[[], None]) -> Cancel:
        """Call `callback` after `delay` seconds, unless the returned function is called before."""

    async def sleep(self, delay: float) -> None:
        """Return after `delay` seconds."""


class LoopClock(Clock):
    """The real time, by the running event loop."""

    def now(self) -> float:
        return time.time()

    def call_later(self, delay: float, callback: Callable[[], None]) -> Cancel:
        return asyncio.get_running_loop().call_later(delay, callback).cancel

    async def sleep(self, delay: float) -> None:
        await asyncio.sleep(delay)


class ManualClock(Clock):
    """A time that moves only when a test says so."""

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._now = start
        self._order = itertools.count()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._canceled: set[int] = set()

    def now(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Cancel:
        number = next(self._order)
        heapq.heappush(self._timers, (self._now + delay, number, callback))
        return lambda: self._canceled.add(number)

    async def sleep(self, delay: float) -> None:
        done = asyncio.Event()
        cancel = self.call_later(delay, done.set)
        try:
            await done.wait()
        finally:
            cancel()

    async def advance(self, seconds: float) -> None:
        """Advance the time: everything due happens in order, and tasks run in between."""
        end = self._now + seconds
        await settle()
        while self._timers and self._timers[0][0] <= end:
            due, number, callback = heapq.heappop(self._timers)
            self._now = max(self._now, due)
            if number not in self._canceled:
                callback()
                await settle()
            self._canceled.discard(number)
        self._now = end
        await settle()


async def settle() -> None:
    """Let every task that can run do so, a few rounds deep."""
    for _ in range(20):
        await asyncio.sleep(0)
