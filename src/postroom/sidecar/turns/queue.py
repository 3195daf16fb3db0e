"""The queue of turns: one at a time, the others wait in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol


class Waiter(Protocol):
    """Who waits in the queue.

    Attributes:
        ended: it no longer wants its turn.
    """

    ended: asyncio.Event

    def wanted(self) -> None:
        """Another one waits: make room if nothing is done at present."""


class TurnQueue:
    """Who has the turn, and who waits for it."""

    def __init__(self) -> None:
        self._holder: Waiter | None = None
        self._waiting: deque[tuple[Waiter, asyncio.Event]] = deque()

    @property
    def free(self) -> bool:
        """Whether one who enters need not wait."""
        return self._holder is None and not self._waiting

    @property
    def waited_for(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    async def enter(self, waiter: Waiter) -> bool:
        """Wait for the turn; False if the waiter has ended meanwhile, and has no turn."""
        if self.free:
            self._holder = waiter
            return True
        place = (waiter, asyncio.Event())
        self._waiting.append(place)
        if self._holder is not None:
            self._holder.wanted()
        try:
            await first(place[1], waiter.ended)
        finally:
            if place in self._waiting:
                self._waiting.remove(place)
            elif waiter.ended.is_set():
                self.leave()
        return not waiter.ended.is_set()

    def leave(self) -> None:
        """Give the turn to the next."""
        self._holder = None
        if self._waiting:
            self._holder, comes = self._waiting.popleft()
            comes.set()


async def first(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
