"""Lanes: one thing at a time for each receiver, in its order, and bounds that many dead ones share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from postroom.webhooks import lanes
from postroom.webhooks.lanes import Lane, Lanes
from postroom.webhooks.sender import LONGEST_REST, PAUSES, Outcome, Schedule

pytestmark = pytest.mark.anyio

SECONDS = 20.0


class Steps:
    """What is done for each lane: it ends when the test says so."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.following: dict[str, float | None] = {}
        self._changed = asyncio.Condition()

    async def __call__(self, lane: Lane) -> float | None:
        async with self._changed:
            self.begun.append(lane.key)
            self._changed.notify_all()
        await self.gates.setdefault(lane.key, asyncio.Event()).wait()
        return self.following.pop(lane.key, None)

    def let(self, *keys: str) -> None:
        for key in keys:
            self.gates.setdefault(key, asyncio.Event()).set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS), self._changed:
            await self._changed.wait_for(condition)


@asynccontextmanager
async def running(steps: Steps) -> AsyncGenerator[Lanes]:
    found = Lanes(steps, clock=lambda: 100.0)
    task = asyncio.create_task(found.run())
    yield found
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_lane_has_one_step_at_a_time_and_a_wake_meanwhile_is_not_lost():
    steps = Steps()
    lane = Lane("one", "anna", "a.example")
    async with running(steps) as found:
        found.wake(lane)
        await steps.until(lambda: steps.begun == ["one"])
        found.wake(lane)
        found.wake(lane)
        assert steps.begun == ["one"]
        steps.let("one")
        await steps.until(lambda: steps.begun == ["one", "one"])


async def test_a_lane_sleeps_until_its_instant_or_an_earlier_wake():
    steps = Steps()
    lane = Lane("one", "anna", "a.example")
    steps.let("one")
    async with running(steps) as found:
        found.wake(lane, 1000.0)
        found.wake(Lane("two", "anna", "a.example"))
        await steps.until(lambda: steps.begun == ["two"])
        found.wake(lane, 99.0)
        await steps.until(lambda: steps.begun == ["two", "one"])


@pytest.mark.requirement("pushes-not-lost")
async def test_dead_receivers_of_one_host_or_owner_leave_places_for_all_others(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(lanes, "OF_HOST", 2)
    monkeypatch.setattr(lanes, "OF_OWNER", 3)
    steps = Steps()
    async with running(steps) as found:
        dead = [f"dead{number}" for number in range(5)]
        for key in dead:
            found.wake(Lane(key, "anna", "dead.example"))
        await steps.until(lambda: len(steps.begun) == 2)
        found.wake(Lane("hers", "anna", "well.example"))
        found.wake(Lane("waits", "anna", "well.example"))
        found.wake(Lane("his", "bert", "dead.example"))
        await steps.until(lambda: len(steps.begun) == 4)
        assert steps.begun[2:] == ["hers", "his"]
        steps.let("hers")
        await steps.until(lambda: "waits" in steps.begun)
        steps.let(*dead, "his", "waits")
        await steps.until(lambda: sorted(steps.begun) == sorted([*dead, "hers", "his", "waits"]))
        async with asyncio.timeout(SECONDS):
            while found.running:  # noqa: ASYNC110 (one turn of the loop)
                await asyncio.sleep(0)
        assert (dict(found._busy), dict(found._queues)) == ({}, {})


def test_the_pauses_grow_and_a_receiver_may_ask_for_longer_ones():
    attempts = [0.0]
    for attempt in range(1, len(PAUSES) + 1):
        following = Schedule(uniform=lambda least, _: least).after(
            Outcome(0, "no answer"), attempt, attempts[-1]
        )
        assert following.at is not None
        attempts.append(following.at)
    assert attempts == [0.0, 5.0, 30.0, 120.0]
    schedule = Schedule(uniform=lambda _, most: most)
    away = Outcome(0, "no answer")
    at = [schedule.after(away, attempt, 0.0).at for attempt in range(1, len(PAUSES) + 1)]
    assert at == [1.2 * pause for pause in PAUSES]
    assert schedule.after(away, len(PAUSES) + 1, 0.0) == (over := schedule.after(away, 99, 0.0))
    assert (over.at, over.all) == (None, True)
    busy = Outcome(429, "it answered 429", 100.0)
    assert schedule.after(busy, 1, 0.0).at == 100.0
    assert schedule.after(Outcome(503, "x", 1e6), 1, 0.0).at == LONGEST_REST
    for status in (400, 401, 404, 422, 451):
        refusal = schedule.after(Outcome(status, "x"), 1, 0.0)
        assert (refusal.at, refusal.all) == (None, False)
    assert schedule.after(Outcome(408, "x"), 1, 0.0).at == 1.2 * PAUSES[0]
    assert schedule.after(Outcome(410, "x"), 1, 0.0).all
