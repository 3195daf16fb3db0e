"""The deadlines of many calls on one timer: a call costs an entry of a dictionary, not a timer of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from postroom_a2a.errors import RequestTimeout

TICK = 0.05
"""Seconds that a future may be late to fail."""

EXCEEDED = "deadline exceeded"
"""How a server's error begins when its deadline passed; the client takes such an error as its own time-out."""

Late = Callable[[float], RequestTimeout]
"""Makes the error of a deadline; the argument is its seconds."""


class AnswerDeadlines:
    """Futures that fail when their time is up."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until: dict[asyncio.Future[Any], tuple[float, float, Late]] = {}
        self._ticking = False

    def watch(self, waiting: asyncio.Future[Any], timeout: float, late: Late) -> None:
        """Fail `waiting` with the error of `late` after `timeout` seconds, unless it is done or forgotten by then."""
        self._until[waiting] = self._loop.time() + timeout, timeout, late
        if timeout < 10 * TICK:
            self._loop.call_later(timeout, self._look, waiting)
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(TICK, self._tick)

    def forget(self, waiting: asyncio.Future[Any]) -> None:
        """Drop the deadline of `waiting`."""
        self._until.pop(waiting, None)

    def _look(self, waiting: asyncio.Future[Any]) -> None:
        if waiting in self._until:
            self._expire(waiting)

    def _tick(self) -> None:
        now = self._loop.time()
        for waiting in [each for each, due in self._until.items() if due[0] <= now]:
            self._expire(waiting)
        self._ticking = bool(self._until)
        if self._ticking:
            self._loop.call_later(TICK, self._tick)

    def _expire(self, waiting: asyncio.Future[Any]) -> None:
        _, timeout, late = self._until.pop(waiting)
        if not waiting.done():
            waiting.set_exception(late(timeout))
