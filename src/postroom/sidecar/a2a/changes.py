"""Following a task from change to change: nothing twice, nothing left out, whichever way news of it come.

What is stored of a task is a chain, in which each record names the one before. So a change that follows the last one
shown can be shown at once, wherever it was heard of; with any other, the control plane is asked for what lies between.
How a task ends, or what it asks, is shown as the control plane has it and in no other way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from postroom.errors import BusDisconnected, NoResponders, RequestTimeout
from postroom.observe import get_logger
from postroom.sidecar.bus import BACKOFF
from postroom.tasks.records import TaskRecord
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import Event, Task

UNSEEN = 16
"""Changes that wait for one follower; of more it reads again what is stored."""

LOOK = 20.0
"""Seconds after which it is looked at what is stored, whatever the news: they may be lost or lies, what is stored is
not."""

SEQUENCE = "urn:postroom:a2a:sequence:1"
"""Key in the metadata of what is streamed: the sequence of its record, and `after`, that of the one before."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A stored change of a task.

    Attributes:
        after: sequence of the record before it.
        event: A2A StreamResponse; None for the first record, which only says that the task is there.
        proven: it was read from the log, or written by us.
    """

    after: int
    sequence: int
    state: TaskState
    event: Event | None = field(hash=False)
    proven: bool = True

    @property
    def settled(self) -> bool:
        """Whether the task has ended or asks."""
        return self.state.terminal or self.state.interrupted


@dataclass(frozen=True, slots=True)
class Page:
    """Changes of a task that follow each other.

    Attributes:
        changes: in their order.
        sequence: of the task's last record.
        task: as it is after that.
    """

    changes: tuple[TaskChange, ...]
    more: bool
    sequence: int
    state: TaskState
    task: Task = field(hash=False)


class Records(Protocol):
    """Tells what is stored of tasks."""

    async def changes(self, task_id: str, after: int, /) -> Page:
        """Changes past sequence `after`, as far as the log goes now."""
        ...


class _Watch:
    """What one follower has not seen yet."""

    def __init__(self) -> None:
        self._heard: deque[TaskChange] = deque()
        self._news = asyncio.Event()
        self.told = 0
        self.overrun = False

    def put(self, change: TaskChange) -> None:
        if len(self._heard) >= UNSEEN:
            self.overrun = True
        else:
            self._heard.append(change)
        self._news.set()

    def look(self) -> None:
        self.overrun = True
        self._news.set()

    def tell(self, sequence: int) -> None:
        self.told = max(self.told, sequence)
        self._news.set()

    def next(self) -> TaskChange | None:
        return self._heard.popleft() if self._heard else None

    def forget(self) -> None:
        self._heard.clear()
        self.told = 0
        self.overrun = False

    async def wait(self, until: float) -> bool:
        """Whether there was news before `until` of the loop's clock."""
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


class TaskChanges:
    """News of tasks, handed to those who follow them."""

    def __init__(self) -> None:
        self._watches: dict[str, set[_Watch]] = {}

    def stored(self, record: TaskRecord, after: int, sequence: int) -> None:
        """This worker has stored a record."""
        self.put(record.id, TaskChange(after, sequence, record.state, record.event))

    def put(self, task: str, change: TaskChange) -> None:
        """A change was heard of."""
        for watch in self._watches.get(task, ()):
            watch.put(change)

    def told(self, task: str, sequence: int) -> None:
        """There is a record of that sequence."""
        for watch in self._watches.get(task, ()):
            watch.tell(sequence)

    def look(self, task: str) -> None:
        """Something may have been missed: who follows the task reads what is stored."""
        for watch in self._watches.get(task, ()):
            watch.look()

    @property
    def followers(self) -> int:
        """How many follow a task."""
        return sum(map(len, self._watches.values()))

    @contextmanager
    def _watching(self, task: str) -> Generator[_Watch]:
        watch = _Watch()
        self._watches.setdefault(task, set()).add(watch)
        try:
            yield watch
        finally:
            self._watches[task].discard(watch)
            if not self._watches[task]:
                del self._watches[task]

    async def follow(self, records: Records, task: str, after: int) -> AsyncGenerator[TaskChange]:
        """What follows the record of sequence `after`, each change once; ends with the task.

        A control plane that is away is waited for; the caller sets the deadline.

        Raises:
            NotFound: there is no such task any more.
        """
        clock = asyncio.get_running_loop().time
        failures, look, proven = 0, 0.0, after
        with self._watching(task) as watch:
            behind = True
            while True:
                if behind or watch.overrun or clock() >= look:
                    watch.forget()
                    try:
                        page = await records.changes(task, after)
                    except (NoResponders, RequestTimeout, BusDisconnected) as error:
                        failures += 1
                        _log.info("what became of task %s is not known yet: %s", task, error)
                        await asyncio.sleep(BACKOFF.delay(failures))
                        continue
                    failures, behind, look = 0, page.more, clock() + LOOK
                    missed = page.state.terminal and not page.changes
                    if proven < after and (page.sequence < after or missed):
                        # Somebody has numbered changes that there are not: the log is right.
                        after, behind = proven, True
                        continue
                    for change in page.changes:
                        yield change
                    if missed:  # its records are gone
                        yield TaskChange(
                            page.sequence, page.sequence, page.state, _status(page.task)
                        )
                    after = proven = page.changes[-1].sequence if page.changes else page.sequence
                    if page.state.terminal and not page.more:
                        return
                    continue
                change = watch.next()
                if change is None:
                    behind = watch.told > after or (not await watch.wait(look))
                    behind = behind or watch.told > after
                elif change.sequence > after:
                    if change.after != after or (change.settled and not change.proven):
                        behind = True
                        continue
                    yield change
                    after = change.sequence
                    proven = after if change.proven else proven
                    if change.state.terminal:
                        return


def _status(task: Task) -> Event:
    update = {"taskId": task["id"], "contextId": task["contextId"], "status": task["status"]}
    return {"statusUpdate": update}


def numbered(event: Event, after: int, sequence: int) -> Event:
    """An event that says which record it is."""
    ((kind, said),) = event.items()
    number = {SEQUENCE: {"after": after, "sequence": sequence}}
    return {kind: {**said, "metadata": {**said.get("metadata", {}), **number}}}
