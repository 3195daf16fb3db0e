"""The messages that the agent holds unconfirmed, and the rule when it gets another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Generic, TypeVar

MOST = 64
"""Messages that the agent may hold, with those set aside. Each costs in-progress beats on the bus."""

ALONE = 30.0
"""Seconds that a redelivered message holds others back: after that the agent has survived it."""

T = TypeVar("T")


class Window(Generic[T]):
    """The messages that the agent holds, oldest first.

    Args:
        size: items at a time, without those set aside.
        alone: seconds that an item which was added as `alone` holds others back.
        most: items at a time, with those set aside.
    """

    def __init__(self, size: int = 1, alone: float = ALONE, most: int = MOST) -> None:
        self._size = size
        self._alone = alone
        self._most = most
        self._items: dict[str, T] = {}
        self._aside: set[str] = set()
        self._changed = asyncio.Event()
        self._exclusive = ""
        self._exclusive_until = 0.0

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> T | None:
        """The item under `key`."""
        return self._items.get(key)

    def add(self, key: str, item: T, *, alone: bool) -> None:
        """Add an item; `alone`: no other joins it for a while."""
        self._items[key] = item
        if alone:
            self._exclusive = key
            self._exclusive_until = _now() + self._alone

    def set_aside(self, key: str) -> None:
        """Keep an item, but let others join before it leaves."""
        self._aside.add(key)
        self._notify()

    def remove(self, key: str) -> None:
        """Take an item out."""
        del self._items[key]
        self._aside.discard(key)
        self._notify()

    def clear(self) -> list[tuple[str, T]]:
        """Take all out."""
        items, self._items, self._aside = list(self._items.items()), {}, set()
        self._notify()
        return items

    async def left(self, key: str, item: T, timeout: float) -> bool:
        """Whether this very item has left, after waiting at most `timeout` seconds for that."""
        end = _now() + timeout
        while self._items.get(key) is item and _now() < end:
            await self.change(end - _now())
        return self._items.get(key) is not item

    async def change(self, timeout: float | None = None) -> None:
        """Wait until something leaves or is set aside, at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return

    async def room(self, *, alone: bool) -> None:
        """Wait until one more may be added. One that is to be `alone` waits for the others, but not for ever."""
        deadline = _now() + self._alone
        while (blocked_until := self._blocked(alone, deadline)) > _now():
            await self.change(min(blocked_until - _now(), self._alone))

    def _blocked(self, alone: bool, deadline: float) -> float:
        """The time until which nothing may be added, unless something changes."""
        waited_for = self._items.keys() - self._aside
        if len(waited_for) >= self._size or len(self._items) >= self._most:
            return float("inf")
        if alone and waited_for:
            return deadline
        return self._exclusive_until if self._exclusive in waited_for else 0.0

    def _notify(self) -> None:
        # Wake the present waiters; later ones wait for the next change.
        self._changed.set()
        self._changed = asyncio.Event()


def _now() -> float:
    return asyncio.get_running_loop().time()
