"""What becomes due at an instant: messages expire, nobody has taken them, approvals expire.

A watch sleeps until the earliest instant, or until something new has an earlier one. It never polls, and asks SQL once
for all that came within a moment.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from postroom.observe.supervision import well
from postroom.projection.changes import MAIL, Change, Changes, Signal, Topic

LONGEST_SLEEP = 60.0
"""The longest sleep in seconds, so that a changed clock or a machine that slept is noticed."""

SHORTEST_SLEEP = 0.01

GATHER = 0.25
"""Seconds from new messages to the query, so that a burst costs one query."""

RETRY = 2.0
"""Seconds until it is looked again where nothing new was due."""

REPEAT = 30.0
"""Seconds after which an action is repeated whose effect SQL does not show."""


class Numbered(Protocol):
    """A row with its sequence."""

    @property
    def seq(self) -> int:
        """The sequence."""


R = TypeVar("R", bound=Numbered)


@dataclass(frozen=True, slots=True)
class Due(Generic[R]):
    """The rows that are due now, and the instant of the next one (None: nothing is waiting)."""

    now: Sequence[R]
    next_at: float | None


class Job(Protocol[R]):
    """The query and the action of a watch."""

    async def find(self, now: float) -> Due[R]:
        """What is due at `now`."""

    def due_at(self, row: Any) -> float | None:
        """The earliest instant at which the row of a change may be due; None for never."""

    async def act(self, row: R) -> None:
        """Append to the log what follows for one due row."""


class Watch(Generic[R]):
    """Does a job for each row when it is due; `topic` brings the new ones."""

    def __init__(
        self,
        job: Job[R],
        changes: Changes,
        clock: Callable[[], float] = time.time,
        topic: Topic = MAIL,
    ) -> None:
        self._job = job
        self._changes = changes
        self._topic = topic
        self._clock = clock
        # Recent actions: until they are folded, SQL still shows their rows as due.
        self._done: dict[int, float] = {}
        self._wakes = math.inf

    async def run(self) -> None:
        """Watch until cancelled or until the changes are closed."""
        with self._changes.listen(self._topic, limit=1, only=self._is_earlier) as listener:
            while True:
                self._wakes = math.inf
                pause = await self.step()
                well()
                self._wakes = self._clock() + pause
                heard = await listener.next(pause)
                if heard is Signal.CLOSED:
                    return
                if heard is not Signal.QUIET:
                    await asyncio.sleep(GATHER)

    def _is_earlier(self, change: Change) -> bool:
        """Whether a new row is due before the watch wakes; SQL may have been asked before it came."""
        at = self._job.due_at(change.row)
        return at is not None and at < self._wakes

    async def step(self) -> float:
        """Act on all that is due; returns seconds until the next step."""
        now = self._clock()
        self._done = {seq: at for seq, at in self._done.items() if at > now - REPEAT}
        due = await self._job.find(now)
        new = [row for row in due.now if row.seq not in self._done]
        for row in new:
            await self._job.act(row)
            self._done[row.seq] = now
        if due.now:
            # The query may have a further page, and past actions should have been folded by then.
            return RETRY if not new else SHORTEST_SLEEP
        until = LONGEST_SLEEP if due.next_at is None else due.next_at - self._clock()
        return max(SHORTEST_SLEEP, min(until, LONGEST_SLEEP))
