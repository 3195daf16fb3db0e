"""Alerts about tasks of agents that Postroom does not run, where nothing happens any more.

Nobody can say whether such an agent still works. So one that does not call is reported after as long as one that does
not take its messages, and one that calls and says nothing of its task after many times as long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.protocol.limits import SHORT_ID
from postroom.protocol.receipts import State
from postroom.store.alerts import SILENT
from postroom.store.database import Database, Store
from postroom.store.ports import TaskHead

PATIENCE = 12
"""Times as long as an absent agent an agent that calls may say nothing of its task."""

ROUND = 30.0
"""The longest pause in seconds between two looks."""


class SilentTasks:
    """Looks for such tasks.

    Args:
        after: seconds without a word that are too long while its agent does not call.
        there: whether that agent calls.
    """

    def __init__(
        self,
        database: Database,
        alert: RaiseAlert,
        there: Callable[[str], bool],
        after: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._alert = alert
        self._there = there
        self._after = after
        self._clock = clock

    @property
    def every(self) -> float:
        """Seconds between two looks."""
        return min(ROUND, self._after)

    async def look(self) -> None:
        """Raise an alert for each task that stands still and has none."""
        now = self._clock()
        found = await self._database.read(partial(_silent, before=now - self._after))
        for task in found:
            still = now - task.updated_at
            if self._there(task.worker) and still < PATIENCE * self._after:
                continue
            short = task.id[:SHORT_ID]
            text = (
                f"has said nothing of task {short} for {still:.0f} s: it is {task.state};"
                f" postroom task cancel {short}"
            )
            await self._alert(Alert(SILENT, text, task.worker, _about(task)))


def _silent(store: Store, before: float) -> list[TaskHead]:
    outside = store.agents.outside()
    if not outside:
        return []
    found = [
        task
        for task in store.tasks.silent(outside, before)
        if not store.alerts.is_raised(SILENT, _about(task))
    ]
    requests = {
        row.seq: row for row in store.messages.messages_at([t.requested_seq for t in found])
    }
    # Of a request that was not taken the alert about its agent's messages tells.
    return [
        task
        for task in found
        if task.seq
        or (row := requests.get(task.requested_seq)) is None
        or row.state != State.ACCEPTED.value
    ]


def _about(task: TaskHead) -> str:
    return f"{task.id}/{task.seq}"
