"""Which records of tasks are over."""

from __future__ import annotations

from postroom.bus.port import Message
from postroom.errors import ProtocolViolation
from postroom.projection.retention import Over, covered
from postroom.protocol import priority
from postroom.protocol.tasks import parse_task_subject
from postroom.store import tasks
from postroom.store.database import Connection

LONGER = 6 * 86400.0
"""Seconds beyond `KEEP` that PRIORITY keeps what is about a task that is still open."""


def _record_over(copy: Connection, record: Message, before: float) -> bool:
    if not covered(copy, "TASKS", record):
        return False
    said = parse_task_subject(record.subject)
    return said is None or _over(copy, said[1], before)


def _priority_over(copy: Connection, record: Message, before: float) -> bool:
    # It is not folded: what it says is in TASKS, or waits for who runs the task.
    try:
        task = priority.decode(record.payload).task
    except ProtocolViolation:
        return True
    return record.timestamp < before - LONGER or _over(copy, task, before)


def _over(copy: Connection, task: str, before: float) -> bool:
    row = tasks.task_by_id(copy, task)
    return row is None or (row.final and row.updated_at < before)


OVER: dict[str, Over] = {"TASKS": _record_over, "PRIORITY": _priority_over}
