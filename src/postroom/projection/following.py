"""The work that follows from what was folded, beside the fold: nobody's records wait for it.

The fold finds out in its own transaction what follows, and hands it over after the commit. A crash between the two
leaves it to the sweep at the next start. So does a fault that lasts: what waits is bounded, and what found no room is
swept up when the fault is over. How much each agent may cause by it within a window of time is its `Quota`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from postroom.errors import EnvironmentFault
from postroom.observe import get_logger
from postroom.projection.changes import Change
from postroom.store.database import Store

log = get_logger(__name__)

MOST = 1024
"""Findings of one part that may wait."""

SAVE_AFTER = 1.0
"""Seconds without records after which a part may note how far it is."""


@dataclass(frozen=True, slots=True)
class After:
    """Work that follows the fold; doing it twice has no second effect.

    Attributes:
        find: what follows from some changes; called in the transaction that folds them, also without changes.
        settle: does what was found in one commit or in several, in their order.
        sweep: finds and does it for everything that is folded: at the start, and after what was found got lost.
        begin: called in a transaction before anything is folded.
        unsaved: whether `find` would note something although there are no changes.
    """

    find: Callable[[Store, Sequence[Change]], Sequence[Any]]
    settle: Callable[[Sequence[Any]], Awaitable[None]]
    sweep: Callable[[], Awaitable[None]] | None = None
    begin: Callable[[Store], None] = lambda _: None
    unsaved: Callable[[], bool] = lambda: False


class Following:
    """Does the work of all parts, one after the other.

    Args:
        persistently: repeats a step until the faults that pass are over.
        poisoned: tells people of what was passed over, because no rule foresaw it.
        quiet: called when a part has something to note and nothing waits.
    """

    def __init__(
        self,
        parts: Sequence[After],
        persistently: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]],
        poisoned: Callable[[Exception], Awaitable[None]],
        quiet: Callable[[], None],
    ) -> None:
        self.swept = asyncio.Event()
        """what follows from the log at the start is done"""
        self.idle = asyncio.Event()
        """nothing waits"""
        self._parts = parts
        self._persistently = persistently
        self._poisoned = poisoned
        self._quiet = quiet
        self._found: list[list[Any]] = [[] for _ in parts]
        self._sweep = False
        self._more = asyncio.Event()

    def sweep(self) -> None:
        """Have everything swept."""
        self._sweep = True
        self._wake()

    def _wake(self) -> None:
        self.idle.clear()
        self._more.set()

    def add(self, found: Sequence[Sequence[Any]]) -> None:
        """Take what each part has found."""
        for waiting, new in zip(self._found, found, strict=True):
            if not new:
                continue
            waiting.extend(new)
            self._wake()
            if len(waiting) > MOST:
                waiting.clear()
                self._sweep = True

    @property
    def unsaved(self) -> bool:
        """Whether a part has something to note."""
        return any(part.unsaved() for part in self._parts)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            if self._sweep:
                self._sweep = False
                for part in self._parts:
                    if part.sweep is not None:
                        await self._swept(part.sweep)
                self.swept.set()
            for part, waiting in zip(self._parts, self._found, strict=True):
                if waiting:
                    found = waiting[:]
                    waiting.clear()
                    await self._settle(part, found)
            if not self._more.is_set():
                self.idle.set()
            if self.unsaved:
                asyncio.get_running_loop().call_later(SAVE_AFTER, self._quiet)

    async def _swept(self, sweep: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._persistently(sweep)
        except EnvironmentFault:
            raise
        except Exception as error:
            # Otherwise what one record has left would end this start, and each one after it.
            log.exception("what follows from the log was not all done")
            await self._poisoned(error)

    async def _settle(self, part: After, found: Sequence[Any]) -> None:
        try:
            await self._persistently(partial(part.settle, found))
        except EnvironmentFault:
            raise
        except Exception as error:
            # As in the fold: one bad record must not hold up what follows from the records of others.
            log.exception("what follows from %d records failed", len(found))
            if len(found) == 1:
                await self._poisoned(error)
                return
            for one in found:
                await self._settle(part, [one])


@dataclass(slots=True)
class Quota:
    """Counts by key: at most `most` within `window` seconds, which begin with the first.

    Forgets everything at a restart, as what it bounds is bounded elsewhere, too.
    """

    most: float
    window: float
    _counts: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, key: str, now: float, amount: float = 1) -> bool:
        """Count `amount`; returns whether that is still within the bound."""
        while self._counts:  # the oldest window is the first
            first, (began, _) = next(iter(self._counts.items()))
            if now - began < self.window:
                break
            del self._counts[first]
        began, count = self._counts.get(key, (now, 0))
        self._counts[key] = began, count + amount
        return count + amount <= self.most

    def give_back(self, key: str, amount: float) -> None:
        """Take back what was counted, and caused nothing after all."""
        if key in self._counts:
            began, count = self._counts[key]
            self._counts[key] = began, max(0, count - amount)
