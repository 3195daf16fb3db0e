"""The actions of one run of the agent, carried out while its further lines are read.

Actions with one owner are carried out in the order of their lines. An action without one waits for all before it, and
those behind wait for it. What is read and not carried out is bounded: then the reading waits, the pipe fills, and so
the agent waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from postroom.protocol.limits import MAX_LINE_BYTES
from postroom.sidecar.adapters import Said
from postroom.sidecar.keys import Owner

MOST = 64
"""Actions at a time: more would only wait for the same bus."""

MOST_BYTES = 2 * MAX_LINE_BYTES
"""Bytes of their lines: the longest line may wait behind another."""


@dataclass(frozen=True, slots=True)
class _Job:
    said: Said
    owner: Owner
    size: int


class ActionQueue:
    """The actions that are under way, and those that wait for them, in the order of their lines.

    Args:
        act: carries out one action.
        tasks: where they run; their faults end it.
    """

    def __init__(
        self, act: Callable[[Said, Owner], Awaitable[None]], tasks: asyncio.TaskGroup
    ) -> None:
        self._act = act
        self._tasks = tasks
        self._running: list[str] = []
        self._waiting: deque[_Job] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._bytes = 0
        self._fewer = asyncio.Event()

    def __len__(self) -> int:
        return len(self._running) + len(self._waiting)

    async def carry_out(self, said: Said, owner: Owner, size: int) -> None:
        """Carry out an action here and now; only while nothing is under way."""
        await self._finish(self._started(_Job(said, owner, size)))
        self._spawn(self._ready())

    async def put(self, said: Said, owner: Owner, size: int) -> None:
        """Begin an action, or queue it; waits while too much is under way."""
        while len(self) and (len(self) >= MOST or self._bytes + size > MOST_BYTES):
            await self._change()
        job, before = _Job(said, owner, size), {each.owner.name for each in self._waiting}
        if _independent(owner.name, before.union(self._running)):
            self._spawn([self._started(job)])
        else:
            self._bytes += size
            self._waiting.append(job)

    async def done(self) -> None:
        """Wait until nothing is under way and nothing waits."""
        while len(self):
            await self._change()

    async def cancel(self) -> int:
        """End what is under way, and forget the rest; returns their number."""
        left = len(self)
        self._waiting.clear()
        for worker in self._workers:
            worker.cancel()
        if self._workers:
            await asyncio.wait(self._workers)
        return left

    async def _change(self) -> None:
        self._fewer.clear()
        await self._fewer.wait()

    def _spawn(self, jobs: list[_Job]) -> None:
        for job in jobs:
            worker = self._tasks.create_task(self._work(job))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)

    def _started(self, job: _Job) -> _Job:
        """Count a job that does not come from the queue."""
        self._running.append(job.owner.name)
        self._bytes += job.size
        return job

    async def _finish(self, job: _Job) -> None:
        try:
            await self._act(job.said, job.owner)
        finally:
            self._running.remove(job.owner.name)
            self._bytes -= job.size
            self._fewer.set()

    async def _work(self, job: _Job) -> None:
        """Carry out one action, and what may follow then."""
        while True:
            await self._finish(job)
            ready = self._ready()
            if not ready:
                return
            job, *others = ready
            self._spawn(others)

    def _ready(self) -> list[_Job]:
        """Take out those that wait for no other any more; they count as running."""
        if not self._waiting:
            return []
        ready: list[_Job] = []
        waiting: deque[_Job] = deque()
        before = set(self._running)
        for job in self._waiting:
            name = job.owner.name
            if _independent(name, before):
                ready.append(job)
                self._running.append(name)
            else:
                waiting.append(job)
            before.add(name)
        self._waiting = waiting
        return ready


def _independent(name: str, before: set[str]) -> bool:
    """Whether an action of the owner `name` need not wait for those of the owners `before`."""
    return not before or bool(name and name not in before and "" not in before)
