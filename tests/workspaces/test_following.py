"""The work of several workers comes back side by side, and that of one in its order."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from postroom.projection.changes import Change, Changes
from postroom.workers.following import WorkFollower

pytestmark = pytest.mark.anyio


async def test_work_of_several_workers_comes_back_at_once_and_of_one_only_again_afterwards():
    begun: list[str] = []
    go, both = asyncio.Event(), asyncio.Event()

    async def after(agent: Any, record: Any) -> None:
        begun.append(agent.uid)
        if {"ann", "bob"} <= set(begun):
            both.set()
        await go.wait()

    async def records() -> list[tuple[Any, Any]]:
        return [(SimpleNamespace(uid=uid), None) for uid in ("ann", "bob")]

    work = SimpleNamespace(held=lambda uid: uid, after=after)
    workers: Any = SimpleNamespace(work=work, records=records)
    changes = Changes()
    follower = asyncio.create_task(WorkFollower(workers, changes).run())
    await asyncio.sleep(0)
    for uid in ("ann", "bob", "ann", "ann"):
        changes.publish([Change("task", 1, id="t", recipient=uid, state="completed")])
    async with asyncio.timeout(5):
        await both.wait()
    assert sorted(begun) == ["ann", "bob"]
    go.set()
    async with asyncio.timeout(5):
        while begun.count("ann") < 2:  # noqa: ASYNC110 (the follower tells nobody)
            await asyncio.sleep(0.01)
    follower.cancel()
    await asyncio.gather(follower, return_exceptions=True)
    assert sorted(begun) == ["ann", "ann", "bob"]
