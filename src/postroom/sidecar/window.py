"""How many messages the agent may hold unconfirmed, and when another may join them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Generic, TypeVar

WINDOW = 1
"""Messages that the agent holds unconfirmed, and that are fetched ahead. One: what it does belongs to the message
that it holds, and a crash uses up the deliveries of no message that it never saw."""

ALONE = 30.0
"""Seconds that a redelivered message keeps others waiting: after that the agent has survived it."""

T = TypeVar("T")


class Window(Generic[T]):
    """The messages that the agent holds, oldest first.

    Args:
        size: how many at once.
        alone: seconds that one which was added as `alone` keeps others away.
    """

    def __init__(self, size: int = WINDOW, alone: float = ALONE) -> None:
        self._size = size
        self._alone = alone
        self._items: dict[str, T] = {}
        self._changed = asyncio.Event()
        self._lonely = ""
        self._lonely_until = 0.0

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._items.values()))

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> T | None:
        """The item under `key`."""
        return self._items.get(key)

    def add(self, key: str, item: T, *, alone: bool) -> None:
        """Take an item in; with `alone`, no other joins it for a while."""
        self._items[key] = item
        if alone:
            self._lonely = key
            self._lonely_until = _now() + self._alone

    def remove(self, key: str) -> None:
        """Take an item out."""
        del self._items[key]
        self._notify()

    def clear(self) -> list[tuple[str, T]]:
        """Take all out."""
        items, self._items = list(self._items.items()), {}
        self._notify()
        return items

    async def change(self, timeout: float | None = None) -> None:
        """Wait until something leaves, at most `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return

    async def room(self, *, alone: bool) -> None:
        """Wait until one more may be added; one that is to be `alone` waits for the others, not for ever."""
        patience = _now() + self._alone
        while (blocked_until := self._blocked(alone, patience)) > _now():
            await self.change(min(blocked_until - _now(), self._alone))

    def _blocked(self, alone: bool, patience: float) -> float:
        """Until when nothing may be added, short of a change."""
        if len(self._items) >= self._size:
            return float("inf")
        if alone and self._items:
            return patience
        return self._lonely_until if self._lonely in self._items else 0.0

    def _notify(self) -> None:
        # Those who wait now are woken; those who wait from now on wait for the next change.
        self._changed.set()
        self._changed = asyncio.Event()


def _now() -> float:
    return asyncio.get_running_loop().time()
