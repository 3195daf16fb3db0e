"""Lanes: each receiver has one thing under way at a time, in its order, and no receiver waits for another.

A lane that sleeps until its next attempt is one entry of a heap; only what is under way has a task. Those of one owner,
and of one host, share a bounded number of places, so that many dead ones hold up their own at most.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from postroom.observe.supervision import guarded, well

OF_OWNER = 32
"""Requests of one owner that are under way at a time."""

OF_HOST = 8
"""Requests of one owner to one host that are under way at a time."""

MOST = 256
"""Requests that are under way at a time."""

RETRY = 5.0
"""Seconds until a step is tried again that has failed."""

LONGEST_SLEEP = 60.0
"""The longest sleep in seconds, so that a changed clock or a machine that slept is noticed."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A receiver: `key` names it, and it shares places with those of its owner and its host."""

    key: str
    owner: str
    host: str

    @property
    def shares(self) -> tuple[tuple[str, int], ...]:
        """What it shares places with, and how many each has."""
        return ((self.owner, OF_OWNER), (f"{self.owner} {self.host}", OF_HOST), ("", MOST))


Step = Callable[[Lane], Awaitable[float | None]]
"""Does what is due for a receiver; returns the instant of what comes next, None when nothing waits."""


class Lanes:
    """Runs the steps of lanes when they are due.

    Args:
        step: never called twice at once for one lane. After an error it is tried again.
    """

    def __init__(self, step: Step, clock: Callable[[], float] = time.time) -> None:
        self._step = step
        self._clock = clock
        self._heap: list[tuple[float, int, Lane]] = []
        self._numbers = itertools.count()
        self._due: dict[str, float] = {}
        self._running: dict[str, Lane] = {}
        self._again: dict[str, float] = {}
        self._busy: Counter[str] = Counter()
        self._queues: defaultdict[str, deque[Lane]] = defaultdict(deque)
        self._more = asyncio.Event()

    @property
    def running(self) -> int:
        """How many steps are under way."""
        return len(self._running)

    def wake(self, lane: Lane, at: float = 0.0) -> None:
        """Take the next step of a lane at an instant, or earlier if an earlier one is known."""
        if lane.key in self._running:
            self._again[lane.key] = min(at, self._again.get(lane.key, at))
            return
        if at >= self._due.get(lane.key, float("inf")):
            return
        self._due[lane.key] = at
        heapq.heappush(self._heap, (at, next(self._numbers), lane))
        self._more.set()

    async def run(self) -> None:
        """Run until cancelled; what was under way when it ended is due at once."""
        under_way = list(self._running.values())
        for kept in (self._running, self._busy, self._queues):
            kept.clear()
        for lane in under_way:
            self.wake(lane)
        async with asyncio.TaskGroup() as group:
            while True:
                self._more.clear()
                well()
                pause = self._begin(group)
                # `wait_for` may lose the cancellation, a timer of the loop cannot.
                timer = asyncio.get_running_loop().call_later(pause, self._more.set)
                try:
                    await self._more.wait()
                finally:
                    timer.cancel()

    def _begin(self, group: asyncio.TaskGroup) -> float:
        """Begin what is due; returns the seconds until something else is."""
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            at, _, lane = heapq.heappop(self._heap)
            if self._due.get(lane.key) == at:  # otherwise an earlier wake took its place
                del self._due[lane.key]
                self._admit(lane, group)
        until = self._heap[0][0] - now if self._heap else LONGEST_SLEEP
        return max(0.001, min(until, LONGEST_SLEEP))

    def _admit(self, lane: Lane, group: asyncio.TaskGroup) -> None:
        for share, most in lane.shares:
            if self._busy[share] >= most:
                self._running[lane.key] = lane  # it waits for a place, and is woken by nothing else
                self._queues[share].append(lane)
                return
        for share, _ in lane.shares:
            self._busy[share] += 1
        self._running[lane.key] = lane
        group.create_task(self._go(lane, group), name=f"lane {lane.key}")

    async def _go(self, lane: Lane, group: asyncio.TaskGroup) -> None:
        following = None
        try:
            with guarded("what is sent waits") as guard:
                following = await self._step(lane)
            if guard.error is not None:
                following = self._clock() + RETRY
        finally:
            self._running.pop(lane.key, None)
            for share, _ in lane.shares:
                self._busy[share] -= 1
        self._busy += Counter()  # without those that nobody has
        again = self._again.pop(lane.key, None)
        for at in (following, again):
            if at is not None:
                self.wake(lane, at)
        for share, most in lane.shares:
            while self._busy[share] < most and (queue := self._queues.get(share)):
                waiting = queue.popleft()
                if not queue:
                    del self._queues[share]
                self._admit(waiting, group)
