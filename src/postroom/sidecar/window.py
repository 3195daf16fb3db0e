"""Which messages the agent holds unconfirmed, and when another may join them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Generic, TypeVar

WINDOW = 1
"""Messages that are waited for at once, and that are fetched ahead. One: what the agent does belongs to the message
that it holds, and a crash uses up the deliveries of no message that it never saw."""

MOST = 64
"""Messages that the agent may hold altogether, those included that were given up waiting for. Each costs beats."""

ALONE = 30.0
"""Seconds that a redelivered message keeps others waiting: after that the agent has survived it."""

T = TypeVar("T")


class Window(Generic[T]):
    """The messages that the agent holds, oldest first.

    Args:
        size: how many at once, but for those that were set aside.
        alone: seconds that one which was added as `alone` keeps others away.
        most: how many at once, with those.
    """

    def __init__(self, size: int = WINDOW, alone: float = ALONE, most: int = MOST) -> None:
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
        """Take an item in; with `alone`, no other joins it for a while."""
        self._items[key] = item
        if alone:
            self._exclusive = key
            self._exclusive_until = _now() + self._alone

    def set_aside(self, key: str) -> None:
        """Keep an item, but nobody waiting for it any more."""
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
        """Wait until this very item has left, at most `timeout` seconds; whether it has."""
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
        """Wait until one more may be added; one that is to be `alone` waits for the others, not for ever."""
        deadline = _now() + self._alone
        while (blocked_until := self._blocked(alone, deadline)) > _now():
            await self.change(min(blocked_until - _now(), self._alone))

    def _blocked(self, alone: bool, deadline: float) -> float:
        """Until when nothing may be added, short of a change."""
        waited_for = self._items.keys() - self._aside
        if len(waited_for) >= self._size or len(self._items) >= self._most:
            return float("inf")
        if alone and waited_for:
            return deadline
        return self._exclusive_until if self._exclusive in waited_for else 0.0

    def _notify(self) -> None:
        # Those who wait now are woken; those who wait from now on wait for the next change.
        self._changed.set()
        self._changed = asyncio.Event()


def _now() -> float:
    return asyncio.get_running_loop().time()
