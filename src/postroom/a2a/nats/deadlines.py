"""Deadlines of many calls at the price of one timer: a call costs a dictionary's entry, not a handle of the loop."""

from __future__ import annotations

import asyncio
from typing import Any

from postroom.errors import RequestTimeout

TICK = 0.05
"""Seconds by which a deadline may be overrun, at most."""


class Deadlines:
    """Futures that fail when their time is up."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._until: dict[asyncio.Future[Any], float] = {}
        self._ticking = False

    def watch(self, waiting: asyncio.Future[Any], timeout: float) -> None:
        """Let `waiting` fail with `RequestTimeout` in `timeout` seconds, unless it is done or forgotten then."""
        self._until[waiting] = self._loop.time() + timeout
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
        for waiting in [each for each, until in self._until.items() if until <= now]:
            self._expire(waiting)
        self._ticking = bool(self._until)
        if self._ticking:
            self._loop.call_later(TICK, self._tick)

    def _expire(self, waiting: asyncio.Future[Any]) -> None:
        del self._until[waiting]
        if not waiting.done():
            waiting.set_exception(RequestTimeout("no answer came in time"))
