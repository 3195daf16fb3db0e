"""A stream comes to the screen in batches, whole and in its order."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from postroom import tui
from postroom.errors import NotRunning
from postroom.tui.following import BOUND, FRAME, follow

pytestmark = pytest.mark.anyio

SECONDS = 10.0


class Tap:
    """A source that gives what the test puts in; None ends it, an error is raised."""

    def __init__(self) -> None:
        self.items: asyncio.Queue[Any] = asyncio.Queue()
        self.closed, self.second = asyncio.Event(), asyncio.Event()

    async def __aiter__(self) -> AsyncGenerator[Any]:
        try:
            while (item := await self.items.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                if item == 2:
                    self.second.set()
                yield item
        finally:
            self.closed.set()


class Heard:
    """What was handed over."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Any]] = []
        self.came = asyncio.Event()

    def take(self, batch: Sequence[Any]) -> None:
        self.batches.append(batch)
        self.came.set()

    @property
    def items(self) -> list[Any]:
        return [item for batch in self.batches for item in batch]

    async def has(self, count: int) -> None:
        async with asyncio.timeout(SECONDS):
            while len(self.items) < count:
                self.came.clear()
                await self.came.wait()


async def test_items_come_whole_in_their_order_and_few_times_a_second():
    tap, heard = Tap(), Heard()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(follow(tap, heard.take))
        for number in range(500):
            tap.items.put_nowait(number)
            await asyncio.sleep(0)
        await heard.has(500)
        following.cancel()

    assert heard.items == list(range(500))
    assert len(heard.batches) <= (loop.time() - begun) / FRAME + 2


async def test_a_source_is_read_no_further_than_the_screen_can_follow():
    tap, heard = Tap(), Heard()
    for number in [*range(3 * BOUND), None]:
        tap.items.put_nowait(number)
    await asyncio.wait_for(follow(tap, heard.take), SECONDS)

    assert heard.items == list(range(3 * BOUND))
    assert [len(batch) for batch in heard.batches] == [BOUND] * 3


async def test_the_last_items_come_before_the_error_that_ends_it():
    tap, heard = Tap(), Heard()
    error = NotRunning("gone")
    for item in (1, 2, error):
        tap.items.put_nowait(item)

    with pytest.raises(NotRunning) as caught:
        await asyncio.wait_for(follow(tap, heard.take), SECONDS)
    assert caught.value is error
    assert heard.items == [1, 2]


async def test_after_a_cancel_nothing_comes_and_the_source_is_closed():
    tap, heard = Tap(), Heard()
    following = asyncio.create_task(follow(tap, heard.take))
    tap.items.put_nowait(1)
    await heard.has(1)
    tap.items.put_nowait(2)
    await asyncio.wait_for(tap.second.wait(), SECONDS)
    following.cancel()

    await asyncio.wait_for(tap.closed.wait(), SECONDS)
    await asyncio.sleep(2 * FRAME)
    assert heard.items == [1]
    assert following.cancelled()


def test_the_screen_has_no_thread_but_the_one_that_ends_it_when_its_loop_stands_still():
    found = {
        path.name
        for path in Path(tui.__path__[0]).rglob("*.py")
        if re.search(
            r"\bthreading\b|ThreadPoolExecutor|call_from_thread|thread=True", path.read_text()
        )
    }
    assert found == {"ending.py"}
