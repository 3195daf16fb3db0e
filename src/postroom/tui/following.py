"""What comes of a stream, handed to the screen in batches.

A batch is at most one frame's worth: twenty a second are as many as a person can see, and a batch costs the screen
about as much as one event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar, cast

from postroom.errors import PostroomError

if TYPE_CHECKING:
    from asyncio import TimerHandle

T = TypeVar("T")

FRAME = 0.05
"""Seconds between two batches."""

BOUND = 2000
"""Items that wait; no further ones are read until they are taken."""


async def follow(source: AsyncIterable[T], take: Callable[[Sequence[T]], None]) -> None:
    """Give `take` the next items, the oldest first, until the source ends; cancelled, it gives nothing more.

    Raises:
        PostroomError: what the source raises, behind its last items.
    """
    items: list[T] = []
    due: TimerHandle | None = None
    error: PostroomError | None = None
    loop, taken = asyncio.get_running_loop(), asyncio.Event()

    def hand_over() -> None:
        nonlocal items, due
        batch, items, due = items, [], None
        taken.set()
        take(batch)

    try:
        async with aclosing(cast("AsyncGenerator[T]", aiter(source))) as found:
            async for item in found:
                items.append(item)
                due = due or loop.call_later(FRAME, hand_over)
                if len(items) >= BOUND:
                    taken.clear()
                    await taken.wait()
    except PostroomError as found_last:
        error = found_last
    finally:
        if due is not None:
            due.cancel()
    if items:
        hand_over()
    if error is not None:
        raise error
