from __future__ import annotations

import asyncio

import pytest

from postroom.sidecar.window import Window

pytestmark = pytest.mark.anyio


async def blocked(waiting: asyncio.Task[None]) -> bool:
    for _ in range(5):
        await asyncio.sleep(0)
    return not waiting.done()


async def test_a_full_window_lets_the_next_in_when_one_leaves():
    window: Window[int] = Window(size=2)
    for n in range(2):
        await window.room(alone=False)
        window.add(str(n), n, alone=False)
    waiting = asyncio.create_task(window.room(alone=False))
    assert await blocked(waiting)

    window.remove("0")
    await asyncio.wait_for(waiting, 5)
    assert list(window) == [1]


async def test_a_redelivered_one_waits_for_the_others_and_keeps_others_waiting():
    window: Window[int] = Window(size=16)
    window.add("new", 1, alone=False)
    redelivered = asyncio.create_task(window.room(alone=True))
    assert await blocked(redelivered)
    window.remove("new")
    await asyncio.wait_for(redelivered, 5)

    window.add("again", 2, alone=True)
    following = asyncio.create_task(window.room(alone=False))
    assert await blocked(following)
    window.remove("again")
    await asyncio.wait_for(following, 5)


async def test_neither_waits_for_ever():
    window: Window[int] = Window(size=16, alone=0.05)
    window.add("slow", 1, alone=False)
    await asyncio.wait_for(window.room(alone=True), 5)

    window.add("again", 2, alone=True)
    await asyncio.wait_for(window.room(alone=False), 5)


async def test_clearing_gives_all_back_and_makes_room():
    window: Window[int] = Window(size=1)
    window.add("a", 1, alone=True)
    waiting = asyncio.create_task(window.room(alone=True))
    assert await blocked(waiting)

    assert window.clear() == [("a", 1)]
    await asyncio.wait_for(waiting, 5)
    assert len(window) == 0
