"""Following a task: each change once, none left out, by whichever way it arrives.

The records of a task are a chain, in which each names the one before. So a change that follows the last one shown can
be shown at once, whatever its source; for any other, the follower reads the gap from the control plane. The end of a
task, or its question, is shown only as the control plane has it.
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
"""Changes that wait for one follower; if there are more, it reads the stored ones again."""

LOOK = 20.0
"""Seconds between two looks at the stored changes: those heard otherwise may be lost or false."""

SEQUENCE = "urn:postroom:a2a:sequence:1"
"""Key in the metadata of a streamed event: `sequence` of its record, and `after`, the sequence of the one before."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TaskChange:
    """A stored change of a task.

    Attributes:
        after: sequence of the record before it.
        event: A2A StreamResponse; None for the first record of a task.
        proven: the change was read from the log, or stored by this worker.
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
    """Successive changes of a task; `sequence` is its last record's, `task` its state after that."""

    changes: tuple[TaskChange, ...]
    more: bool
    sequence: int
    state: TaskState
    task: Task = field(hash=False)


class Records(Protocol):
    """The stored changes of tasks."""

    async def changes(self, task_id: str, after: int, /) -> Page:
        """The stored changes past sequence `after`."""
        ...


class _Watch:
    """The changes that one follower has not seen yet."""

    def __init__(self) -> None:
        self._heard: deque[TaskChange] = deque()
        self._changed = asyncio.Event()
        self.newest = 0
        self.overrun = False

    def put(self, change: TaskChange) -> None:
        if len(self._heard) >= UNSEEN:
            self.overrun = True
        else:
            self._heard.append(change)
        self._changed.set()

    def look(self) -> None:
        self.overrun = True
        self._changed.set()

    def note(self, sequence: int) -> None:
        self.newest = max(self.newest, sequence)
        self._changed.set()

    def next(self) -> TaskChange | None:
        return self._heard.popleft() if self._heard else None

    def forget(self) -> None:
        self._heard.clear()
        self.newest = 0
        self.overrun = False

    async def wait(self, until: float) -> bool:
        """Whether anything came before `until` of the loop's clock."""
        try:
            async with asyncio.timeout_at(until):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True


class TaskChanges:
    """Passes changes of tasks to their followers."""

    def __init__(self) -> None:
        self._watches: dict[str, set[_Watch]] = {}

    def stored(self, record: TaskRecord, after: int, sequence: int) -> None:
        """This worker has stored a record."""
        begun = record.event is None and record.state is not TaskState.SUBMITTED
        event = _status(record.task) if begun else record.event
        self.put(record.id, TaskChange(after, sequence, record.state, event))

    def put(self, task: str, change: TaskChange) -> None:
        """Pass on a change."""
        for watch in self._watches.get(task, ()):
            watch.put(change)

    def note(self, task: str, sequence: int) -> None:
        """Tell the followers that the log has a record of that sequence."""
        for watch in self._watches.get(task, ()):
            watch.note(sequence)

    def look(self, task: str) -> None:
        """Let the followers read the stored changes: they may have missed one."""
        for watch in self._watches.get(task, ()):
            watch.look()

    @property
    def followers(self) -> int:
        """The number of followers, of all tasks."""
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
        """The changes after the record of sequence `after`, each once, up to the task's end.

        Waits for a control plane that is away; the caller sets the deadline.

        Raises:
            NotFound: the task is deleted.
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
                        _log.info("the changes of task %s are not known yet: %s", task, error)
                        await asyncio.sleep(BACKOFF.delay(failures))
                        continue
                    failures, behind, look = 0, page.more, clock() + LOOK
                    missed = page.state.terminal and not page.changes
                    if proven < after and (page.sequence < after or missed):
                        # The peer has numbered changes that do not exist: the log is right.
                        after, behind = proven, True
                        continue
                    for change in page.changes:
                        yield change
                    if missed:  # its records are deleted
                        yield TaskChange(
                            page.sequence, page.sequence, page.state, _status(page.task)
                        )
                    after = proven = page.changes[-1].sequence if page.changes else page.sequence
                    if page.state.terminal and not page.more:
                        return
                    continue
                change = watch.next()
                if change is None:
                    behind = watch.newest > after or (not await watch.wait(look))
                    behind = behind or watch.newest > after
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
    """An event with the sequences of its record and of the one before."""
    ((kind, said),) = event.items()
    number = {SEQUENCE: {"after": after, "sequence": sequence}}
    return {kind: {**said, "metadata": {**said.get("metadata", {}), **number}}}
