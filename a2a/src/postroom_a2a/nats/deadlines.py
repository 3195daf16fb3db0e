"""Deadlines of many calls at the price of one timer: a call costs a dictionary's entry, not a handle of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from postroom_a2a.errors import RequestTimeout

TICK = 0.05
"""Seconds by which a deadline may be overrun, at most."""

EXCEEDED = "deadline exceeded"
"""How a server's error begins that says so; the client tells its own time-out by it."""

Late = Callable[[float], RequestTimeout]
"""The error of a deadline of so many seconds."""


class AnswerDeadlines:
    """Futures that fail when their time is up."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until: dict[asyncio.Future[Any], tuple[float, float, Late]] = {}
        self._ticking = False

    def watch(self, waiting: asyncio.Future[Any], timeout: float, late: Late) -> None:
        """Let `waiting` fail with what `late` gives in `timeout` seconds, unless it is done or forgotten then."""
        self._until[waiting] = self._loop.time() + timeout, timeout, late
        if timeout < 10 * TICK:
            self._loop.call_later(timeout, self._look, waiting)
        if not self._ticking:
            self._ticking = True
            self._loop.call_later(TICK, self._tick)

    def forget(self, waiting: asyncio.Future[Any]) -> None:
        """It needs no deadline any more."""
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
