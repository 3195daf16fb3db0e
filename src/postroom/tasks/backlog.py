"""Tasks that wait for their turn, in order. There may be thousands, so only the next ones keep their content in
memory.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from postroom.tasks.log import StoredTask
from postroom_a2a.tasks import Message

HELD = 16
"""Waiting tasks whose content stays in memory."""


@dataclass(slots=True)
class Waiting:
    """A task that waits.

    Attributes:
        stored: its last record; None if that is to be read when its turn comes.
        begun: an earlier attempt began and did not end with a question.
        heard: the answer with which it goes on.
        started: its first record says that it has begun.
        why: how the earlier attempt ended.
    """

    id: str
    stored: StoredTask | None = None
    begun: bool = False
    heard: Message | None = None
    started: bool = False
    why: str = ""

    @property
    def begins(self) -> bool:
        """Whether its attempt begins without a further record."""
        return self.started or self.heard is not None


class Backlog:
    """A queue of `Waiting`, each task once."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, Waiting] = OrderedDict()
        self._held = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._waiting

    def add(self, waiting: Waiting, *, first: bool = False) -> None:
        """Queue a task; with `first` it is next, or after one that has started."""
        if waiting.stored is not None and (first or self._held < HELD):
            self._held += 1
        else:
            waiting.stored = None
        next_one = next(iter(self._waiting.values()), None)
        started = next_one.id if next_one is not None and next_one.started else None
        self._waiting[waiting.id] = waiting
        if first:
            self._waiting.move_to_end(waiting.id, last=False)
            if started is not None:
                self._waiting.move_to_end(started, last=False)

    def next(self) -> Waiting:
        """Take out the next task."""
        _, waiting = self._waiting.popitem(last=False)
        return self._let_go(waiting)

    def take(self, task_id: str) -> Waiting | None:
        """Take out this task."""
        waiting = self._waiting.pop(task_id, None)
        return waiting if waiting is None else self._let_go(waiting)

    def begun(self) -> list[Waiting]:
        """Take out the tasks with an attempt that began."""
        ids = [
            task_id for task_id, waiting in self._waiting.items() if waiting.begun or waiting.begins
        ]
        return [waiting for waiting in map(self.take, ids) if waiting is not None]

    def _let_go(self, waiting: Waiting) -> Waiting:
        self._held -= waiting.stored is not None
        return waiting
