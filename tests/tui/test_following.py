"""A stream that is read in a thread comes to the event loop in batches, whole and in its order."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from postroom.errors import NotRunning, PostroomError
from postroom.tui.following import BOUND, FRAME, Following

pytestmark = pytest.mark.anyio

SECONDS = 10.0


class Tap:
    """A source that gives what the test puts in; None ends it, an error is raised."""

    def __init__(self) -> None:
        self.items: queue.Queue[Any] = queue.Queue()
        self.read = 0
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        while (item := self.items.get()) is not None:
            if isinstance(item, Exception):
                raise item
            self.read += 1
            yield item

    def close(self) -> None:
        self.closed.set()
        self.items.put(None)


class Heard:
    """What was handed over, and how it ended."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Any]] = []
        self.came = asyncio.Event()
        self.ended: asyncio.Future[PostroomError | None] = (
            asyncio.get_running_loop().create_future()
        )

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
    following = Following(lambda: tap, heard.take, heard.ended.set_result, name="tap")
    for number in range(500):
        tap.items.put(number)
        await asyncio.sleep(0)
    await heard.has(500)
    following.close()

    assert heard.items == list(range(500))
    assert len(heard.batches) <= (loop.time() - begun) / FRAME + 2


async def test_a_source_is_read_no_further_than_the_screen_can_follow():
    tap, heard = Tap(), Heard()
    following = Following(lambda: tap, heard.take, heard.ended.set_result, name="tap")
    for number in range(3 * BOUND):
        tap.items.put(number)
    while tap.read < BOUND:  # the event loop is kept from taking any of them
        pass
    assert tap.read <= BOUND + 1
    await heard.has(3 * BOUND)
    following.close()

    assert heard.items == list(range(3 * BOUND))


async def test_the_last_items_come_before_the_error_that_ends_it():
    tap, heard = Tap(), Heard()
    Following(lambda: tap, heard.take, heard.ended.set_result, name="tap")
    error = NotRunning("gone")
    for item in (1, 2, error):
        tap.items.put(item)

    assert await asyncio.wait_for(heard.ended, SECONDS) is error
    assert heard.items == [1, 2]


async def test_after_close_nothing_comes_and_the_source_is_closed():
    tap, heard = Tap(), Heard()
    following = Following(lambda: tap, heard.take, heard.ended.set_result, name="tap")
    tap.items.put(1)
    await heard.has(1)
    following.close()
    tap.items.put(2)

    assert await asyncio.to_thread(tap.closed.wait, SECONDS)
    await asyncio.sleep(2 * FRAME)
    assert heard.items == [1]
    assert not heard.ended.done()


async def test_what_is_closed_while_it_is_opened_is_closed_too():
    tap, heard = Tap(), Heard()
    opening, go_on = threading.Event(), threading.Event()

    def opened() -> Tap:
        opening.set()
        go_on.wait(SECONDS)
        return tap

    following = Following(opened, heard.take, heard.ended.set_result, name="tap")
    assert await asyncio.to_thread(opening.wait, SECONDS)
    following.close()
    go_on.set()

    assert await asyncio.to_thread(tap.closed.wait, SECONDS)


async def test_an_error_that_nobody_expected_is_the_loop_s_and_not_lost_with_the_thread():
    tap, heard = Tap(), Heard()
    loop = asyncio.get_running_loop()
    raised: asyncio.Future[Any] = loop.create_future()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: raised.set_result(context["exception"]))
    try:
        following = Following(lambda: tap, heard.take, lambda _: None, name="test")
        tap.items.put("one")
        tap.items.put(KeyError("seq"))
        async with asyncio.timeout(SECONDS):
            assert isinstance(await raised, KeyError)
        following.close()
    finally:
        loop.set_exception_handler(before)
