"""The spans of tasks, made from the records of the log: a worker in its sandbox has no way to send any.

    task wait   from the request to the begin of the work
    task turn   from the begin of an attempt to its end, or to a question

Both lie under the trace that the request names. What a worker asks of another while it is at a task lies under its
turn, so one trace shows who worked for whom. Two spans for each task and attempt, whatever its agent says.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from postroom.observe import get_logger, tracing
from postroom.observe.supervision import well
from postroom.observe.tracing import CONSUMER, Span
from postroom.projection.changes import TASKS, Change, Changes, Signal
from postroom.protocol.content import REFERENCES
from postroom.protocol.traces import trace_of
from postroom.store.database import Database, Store
from postroom.store.ports import TaskEventRow, TaskHead, TaskRow
from postroom_a2a.task_state import TERMINAL, TaskState

log = get_logger(__name__)

MAX_FOLLOWED = 10_000
"""Open tasks whose spans are open: of further ones the oldest have no end."""

QUEUED = 4096
"""Changes that may wait for this."""

IDLE = 3600.0
"""Seconds of silence after which it is looked whether there will be more."""


@dataclass(slots=True)
class _Followed:
    """An open task."""

    worker: str
    parent: str
    waiting: Span | None = None
    turn: Span | None = None
    attempt: int = 0


class TaskSpans:
    """Makes the spans of the tasks of one organisation."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes
        self._followed: OrderedDict[str, _Followed] = OrderedDict()

    async def run(self) -> None:
        """Make spans until cancelled; of what came during a fault none are made."""
        self._followed.clear()
        with self._changes.listen(TASKS, limit=QUEUED) as listener:
            while (change := await listener.next(IDLE)) is not Signal.CLOSED:
                if change is Signal.GAP:
                    log.warning("spans of %d tasks are lost", len(self._followed))
                    self._followed.clear()
                elif isinstance(change, Change):
                    await self._heard(change)
                well()

    async def _heard(self, change: Change) -> None:
        row: TaskRow = change.row
        if change.event is None:
            self._asked(row)
        else:
            await self._changed(row, change.event)

    def _asked(self, row: TaskRow) -> None:
        request = _request(row)
        parent = self._of_cause(row, request) or trace_of(request)
        waiting = tracing.start(
            "task wait", CONSUMER, _attributes(row), parent=parent, at=row.created_at
        )
        self._followed[row.id] = _Followed(row.worker, parent or waiting.trace, waiting)
        while len(self._followed) > MAX_FOLLOWED:
            self._followed.popitem(last=False)

    def _of_cause(self, row: TaskRow, request: Mapping[str, Any]) -> str:
        """The turn in which it was asked for: its requester names the task, which counts if it is at work on it."""
        named = request.get(REFERENCES)
        for task in named[:1] if isinstance(named, list) else ():
            cause = self._followed.get(task) if isinstance(task, str) else None
            if cause is not None and cause.worker == row.requester and cause.turn is not None:
                return cause.turn.trace
        return ""

    async def _changed(self, row: TaskHead, event: TaskEventRow) -> None:
        state = TaskState(row.state)
        followed = self._followed.get(row.id) or await self._recalled(row)
        if state is TaskState.WORKING and (
            followed.turn is None or followed.attempt != event.attempt
        ):
            _end(followed.waiting, event.at)
            _end(followed.turn, event.at, fault="the attempt was lost")
            followed.waiting, followed.attempt = None, event.attempt
            followed.turn = tracing.start(
                "task turn", CONSUMER, _attributes(row), parent=followed.parent, at=event.at
            )
        elif state.interrupted or state in TERMINAL:
            fault = row.said if state in (TaskState.FAILED, TaskState.REJECTED) else ""
            for each in (followed.waiting, followed.turn):
                if each is not None:
                    each.note({"postroom.state": state.value})
                _end(each, event.at, fault=fault)
            followed.waiting = followed.turn = None
            if state in TERMINAL:
                del self._followed[row.id]

    async def _recalled(self, row: TaskHead) -> _Followed:
        """A task that was asked for before this process began."""

        def find(store: Store) -> tuple[TaskRow | None, float | None]:
            return store.tasks.task_by_id(row.id), store.tasks.begun([row.id]).get(row.id)

        found, begun = await self._database.read(find)
        parent = trace_of(_request(found)) if found is not None else ""
        followed = self._followed[row.id] = _Followed(row.worker, parent)
        if begun is not None and begun < row.updated_at:
            followed.attempt = row.attempt
            followed.turn = tracing.start(
                "task turn", CONSUMER, _attributes(row), parent=parent, at=begun
            )
        return followed


def _request(row: TaskRow) -> Mapping[str, Any]:
    history = json.loads(row.snapshot).get("history") if row.snapshot else None
    first = history[0] if isinstance(history, list) and history else {}
    return first if isinstance(first, dict) else {}


def _attributes(row: TaskHead) -> dict[str, str | int]:
    return {
        "postroom.task": row.id,
        "postroom.worker": row.worker,
        "postroom.requester": row.requester,
        "postroom.attempt": row.attempt,
    }


def _end(one: Span | None, at: float, fault: str = "") -> None:
    if one is not None:
        one.end(at, fault)
