"""Reading what a run of the agent prints, and having it carried out.

An action is carried out where its line was read, which costs least. If it takes longer than `SOON`, another task goes
on with the reading, and what is read then goes into the queue.

Actions with one owner are carried out in the order of their lines. An action without one waits for all before it, and
those behind wait for it. What is read and not carried out is bounded: then the reading waits, the pipe fills, and so
the agent waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from postroom.observe import get_logger
from postroom.protocol.limits import MAX_LINE_BYTES
from postroom.sidecar.adapters import Adapter, Output, Said
from postroom.sidecar.keys import Owner
from postroom_a2a.text import printable

CHUNK = 64 * 1024
LOGGED = 2000
"""Characters of one line of output in the log."""

SOON = 0.05
"""Seconds after which an action counts as one that waits: storing a message takes a tenth of it."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Hearing:
    """What becomes of what a run says.

    Attributes:
        owner_of: to which message or task it belongs, just after it was read.
        act: carries it out.
    """

    owner_of: Callable[[Said], Owner]
    act: Callable[[Said, Owner], Awaitable[None]]


class Reading:
    """The reading of one run's output.

    Args:
        tasks: where actions are carried out beside the reading; their faults end it.
    """

    def __init__(
        self,
        stdout: asyncio.StreamReader,
        adapter: Adapter,
        hearing: Hearing,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._stdout = stdout
        self._adapter = adapter
        self._hearing = hearing
        self._tasks = tasks
        self._actions = ActionQueue(hearing.act, tasks)
        self._heard: deque[tuple[Said, int]] = deque()
        self._silent = 0
        self._turn = 0
        self._followers: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    async def run(self) -> None:
        """Carry out what the agent prints; returns when it has closed its output and all is done."""
        await self._read()
        await self._closed.wait()
        await self._actions.done()

    async def cancel(self) -> int:
        """End what is under way, once `run` was cancelled; returns the number of actions that were not carried out."""
        for task in self._followers:
            task.cancel()
        return await self._actions.cancel()

    async def _read(self) -> None:
        """Read on, to the end or until another task has taken over."""
        while (heard := await self._next()) is not None:
            said, size = heard
            owner = self._hearing.owner_of(said)
            if isinstance(said, Output):
                await self._hearing.act(said, owner)  # it waits for nothing
            elif len(self._actions):
                await self._actions.put(said, owner, size)
            elif not await self._act_here(said, owner, size):
                return
        self._closed.set()

    async def _act_here(self, said: Said, owner: Owner, size: int) -> bool:
        """Carry out an action; whether this task is to read on then."""
        turn = self._turn
        waits = asyncio.get_running_loop().call_later(SOON, self._pass_on)
        try:
            await self._actions.carry_out(said, owner, size)
        finally:
            waits.cancel()
        return self._turn == turn

    def _pass_on(self) -> None:
        self._turn += 1
        follower = self._tasks.create_task(self._read())
        self._followers.add(follower)
        follower.add_done_callback(self._followers.discard)

    async def _next(self) -> tuple[Said, int] | None:
        """What was said next, and the bytes read since anything was said before; None at the end of the output."""
        while not self._heard:
            data = await self._stdout.read(CHUNK)
            if not data:
                return None
            self._silent += len(data)
            for said in self._adapter.feed(data):
                self._heard.append((said, self._silent))
                self._silent = 0
        return self._heard.popleft()


def log_output(source: str, text: str) -> None:
    """Log a line of the agent's with its indentation, made harmless for terminals."""
    line = printable(text).replace("\n", " ").rstrip()
    _log.info("agent %s: %s", source, line if len(line) <= LOGGED else f"{line[: LOGGED - 1]}…")


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
