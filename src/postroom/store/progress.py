"""Tasks and their changes as a person who watches asks for them: how long, and what is new."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, and_, select

from postroom.store.messages import page
from postroom.store.rows import all_of
from postroom.store.schema import a2a_task_events, a2a_tasks
from postroom.store.tasks import EVENT, HEAD, TaskEventRow, TaskHead
from postroom_a2a.task_state import TaskState


def begun(connection: Connection, tasks: Collection[str]) -> dict[str, float]:
    """When somebody began to work on each of those tasks; one that nobody has begun is left out."""
    of_it = and_(
        a2a_task_events.c.task == a2a_tasks.c.id, a2a_task_events.c.state == TaskState.WORKING.value
    )
    first = select(a2a_task_events.c.at).where(of_it).order_by(a2a_task_events.c.seq).limit(1)
    found = select(a2a_tasks.c.id, first.correlate(a2a_tasks).scalar_subquery())
    rows = connection.execute(found.where(a2a_tasks.c.id.in_(tasks)))
    return {task: at for task, at in rows if at is not None}


def heads_by_ids(connection: Connection, ids: Collection[str]) -> list[TaskHead]:
    """The tasks with those ids without their snapshots, in no order."""
    return all_of(connection, TaskHead, select(*HEAD).where(a2a_tasks.c.id.in_(ids)))


def events_past(connection: Connection, after: int, limit: int) -> list[TaskEventRow]:
    """The first changes of all tasks past sequence `after`, in their order."""
    found = select(*EVENT).where(a2a_task_events.c.seq > after).order_by(a2a_task_events.c.seq)
    return all_of(connection, TaskEventRow, found.limit(page(limit)))


def requested_past(connection: Connection, after: int, limit: int) -> list[TaskHead]:
    """The first tasks that were asked for past sequence `after` of INBOX, in that order."""
    found = select(*HEAD).where(a2a_tasks.c.requested_seq > after)
    found = found.order_by(a2a_tasks.c.requested_seq)
    return all_of(connection, TaskHead, found.limit(page(limit)))
