"""A2A tasks and their changes, as rows of the projection."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import fields, replace
from operator import attrgetter

from sqlalchemy import (
    ColumnElement,
    and_,
    bindparam,
    case,
    delete,
    exists,
    false,
    func,
    literal_column,
    or_,
    select,
    true,
    update,
)

from postroom.protocol.limits import MAX_PAGE, MAX_SHOWN_TEXT
from postroom.store.messages import page
from postroom.store.ports import MAX_RETRIES, Ended, TaskEventRow, TaskHead, TaskRow, Tasks
from postroom.store.records import Cursors
from postroom.store.schema import a2a_task_events, a2a_tasks
from postroom.store.session import Session, among, insert_new, octets, prepared, values_of
from postroom_a2a import strict_json
from postroom_a2a.task_state import INTERRUPTED, TaskState
from postroom_a2a.tasks import compose

BATCH = 256
"""The most tasks of one query by the post office; the next query finds the rest."""


MAX_ASKING = 20
"""Questions of one worker that lists show, so that no worker crowds out the others."""


HEAD = [
    func.substr(a2a_tasks.c.text, 1, MAX_SHOWN_TEXT).label("text")
    if field.name == "text"
    else a2a_tasks.c[field.name]
    for field in fields(TaskHead)
]
_stored = a2a_task_events.alias("stored")
_SNAPSHOT = func.coalesce(func.nullif(_stored.c.snapshot, ""), a2a_tasks.c.snapshot)
_ROW = [
    _SNAPSHOT.label("snapshot") if field.name == "snapshot" else a2a_tasks.c[field.name]
    for field in fields(TaskRow)
]
_WHOLE = select(*_ROW).outerjoin(_stored, _stored.c.seq == a2a_tasks.c.snapshot_seq)
# A task that nobody has taken has its snapshot in its own row.
_NEW = [a2a_tasks.c[field.name] for field in fields(TaskRow)]
EVENT = [a2a_task_events.c[field.name] for field in fields(TaskEventRow)]

# Rendered as `final = 0`, the exact words of the partial indexes.
_OPEN = a2a_tasks.c.final == false()
_UNTAKEN = and_(_OPEN, a2a_tasks.c.seq == literal_column("0"))

CHANGING = (
    "state",
    "seq",
    "attempt",
    "lost",
    "runner",
    "released",
    "said",
    "snapshot_seq",
    "weight",
    "since",
    "final",
    "updated_at",
)
"""What a change of a task changes of it."""

_INTERRUPTED = sorted(state.value for state in INTERRUPTED)

_PAST = a2a_tasks.c.requested_seq > bindparam("after")
_REQUESTED_AT = among(a2a_tasks.c.requested_seq, "seqs")

_INSERT = insert_new(a2a_tasks)
_UPDATE = prepared(update(a2a_tasks).where(a2a_tasks.c.id == bindparam("task")))
_INSERT_EVENT = insert_new(a2a_task_events)
_HEAD_BY_ID = prepared(select(*HEAD).where(a2a_tasks.c.id == bindparam("task")))
_BY_ID = prepared(_WHOLE.where(a2a_tasks.c.id == bindparam("task")))
_BY_IDS = prepared(_WHOLE.where(among(a2a_tasks.c.id, "ids")))
_SINCE = prepared(
    select(a2a_task_events.c.event, a2a_task_events.c.answer)
    .where(a2a_task_events.c.task == bindparam("of"))
    .where(a2a_task_events.c.seq > bindparam("after"), a2a_task_events.c.seq <= bindparam("upto"))
    .order_by(a2a_task_events.c.seq)
)
_DROP_SNAPSHOT = prepared(
    update(a2a_task_events).where(a2a_task_events.c.seq == bindparam("at_seq")).values(snapshot="")
)
_HEADS_BY_IDS = prepared(select(*HEAD).where(among(a2a_tasks.c.id, "ids")))
_HEADS_BY_REQUESTS = prepared(select(*HEAD).where(_REQUESTED_AT))
_EVENTS_OF = prepared(
    select(*EVENT)
    .where(a2a_task_events.c.task == bindparam("of"), a2a_task_events.c.seq > bindparam("after"))
    .order_by(a2a_task_events.c.seq)
    .limit(bindparam("most"))
)
_SILENT = prepared(
    select(*HEAD)
    .where(_OPEN, among(a2a_tasks.c.worker, "workers"))
    .where(a2a_tasks.c.state.not_in(_INTERRUPTED), a2a_tasks.c.updated_at < bindparam("before"))
    .order_by(a2a_tasks.c.requested_seq)
    .limit(BATCH)
)
_EVENTS_AT = prepared(select(*EVENT).where(among(a2a_task_events.c.seq, "seqs")))
_QUEUE = prepared(
    select(a2a_tasks.c.requested_seq, a2a_tasks.c.state)
    .where(_OPEN, a2a_tasks.c.worker == bindparam("of"), a2a_tasks.c.seq > 0)
    .where(a2a_tasks.c.state.in_((TaskState.SUBMITTED.value, TaskState.WORKING.value)))
    .order_by(a2a_tasks.c.requested_seq)
    .limit(bindparam("most"))
)
_UNTAKEN_TASKS = prepared(
    select(*_NEW).where(_UNTAKEN, _PAST).order_by(a2a_tasks.c.requested_seq).limit(BATCH)
)
_OPEN_OF = prepared(
    _WHOLE.where(_OPEN, a2a_tasks.c.worker == bindparam("of"), a2a_tasks.c.seq > 0, _PAST)
    .order_by(a2a_tasks.c.requested_seq)
    .limit(BATCH)
)
_FIRST_ATTEMPT = (
    select(a2a_task_events.c.at)
    .where(
        a2a_task_events.c.task == a2a_tasks.c.id,
        a2a_task_events.c.state == TaskState.WORKING.value,
    )
    .order_by(a2a_task_events.c.seq)
    .limit(1)
)
_BEGUN = prepared(
    select(a2a_tasks.c.id, _FIRST_ATTEMPT.correlate(a2a_tasks).scalar_subquery()).where(
        among(a2a_tasks.c.id, "ids")
    )
)
_RETRIES = prepared(
    # The index is partial.
    select(*HEAD)
    .where(a2a_tasks.c.retry_of == bindparam("of"), a2a_tasks.c.retry_of != "")
    .order_by(a2a_tasks.c.requested_seq)
    .limit(MAX_RETRIES)
)
_COUNTS = prepared(
    select(a2a_tasks.c.worker, func.count()).where(_OPEN).group_by(a2a_tasks.c.worker)
)

_STATES = prepared(select(a2a_tasks.c.state, func.count()).where(_OPEN).group_by(a2a_tasks.c.state))


# ── what has ended ──────────────────────────────────────────────────────────────────────────────────────────

_ROW_SIZE = octets(a2a_tasks.c.text) + octets(a2a_tasks.c.snapshot)
_EVENT_SIZE = octets(a2a_task_events.c.event) + octets(a2a_task_events.c.snapshot)
_EVENTS_SIZE = (
    select(func.coalesce(func.sum(_EVENT_SIZE), 0))
    .where(a2a_task_events.c.task == a2a_tasks.c.id)
    .scalar_subquery()
)
_ENDED = (
    select(
        a2a_tasks.c.requested_seq,
        a2a_tasks.c.id,
        a2a_tasks.c.worker,
        a2a_tasks.c.created_at,
        a2a_tasks.c.updated_at,
    )
    .where(a2a_tasks.c.requested_seq > bindparam("after"), a2a_tasks.c.final == true())
    .order_by(a2a_tasks.c.requested_seq)
    .limit(bindparam("most"))
)
_TASKS = prepared(_ENDED.add_columns(_ROW_SIZE + _EVENTS_SIZE))
_TASKS_UNSIZED = prepared(_ENDED.add_columns(literal_column("0")))
_FORGET_EVENTS = prepared(delete(a2a_task_events).where(among(a2a_task_events.c.task, "ids")))
_FORGET_TASKS = prepared(delete(a2a_tasks).where(among(a2a_tasks.c.id, "ids")))

# The events that are neither the first of a state nor, so, the last of their task.
_FIRSTS = (
    select(func.min(a2a_task_events.c.seq))
    .where(among(a2a_task_events.c.task, "ids"))
    .group_by(a2a_task_events.c.task, a2a_task_events.c.state)
)
_PROGRESS = and_(among(a2a_task_events.c.task, "ids"), a2a_task_events.c.seq.not_in(_FIRSTS))
_COUNT_PROGRESS = prepared(
    select(a2a_task_events.c.task, func.count(), func.sum(_EVENT_SIZE))
    .where(_PROGRESS)
    .group_by(a2a_task_events.c.task)
)
_FORGET_PROGRESS = prepared(delete(a2a_task_events).where(_PROGRESS))
_TASK_SIZES = prepared(select(a2a_tasks.c.worker, func.sum(_ROW_SIZE)).group_by(a2a_tasks.c.worker))
_EVENT_SIZES = prepared(
    select(a2a_task_events.c.worker, func.sum(_EVENT_SIZE)).group_by(a2a_task_events.c.worker)
)


class TaskStore(Tasks):
    """Tasks and their changes.

    A projection of its own: it has its own cursors and joins no other table.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.cursors = Cursors(session, "tasks")

    def insert_task(self, row: TaskRow) -> bool:
        return self._session.run(_INSERT, values_of(row)) == 1

    def record_change(self, row: TaskRow, change: TaskEventRow) -> None:
        # A row is written anew at each change, so nothing large may lie in it.
        fresh = {"snapshot": ""} if row.snapshot else {}
        changes = {name: getattr(row, name) for name in CHANGING} | fresh
        self._session.run(_UPDATE, {"task": row.id, **changes})
        self._session.run(_INSERT_EVENT, {**values_of(change), "snapshot": row.snapshot})

    def drop_snapshot(self, seq: int) -> None:
        self._session.run(_DROP_SNAPSHOT, {"at_seq": seq})

    def head_by_id(self, task: str) -> TaskHead | None:
        return self._session.first(TaskHead, _HEAD_BY_ID, task=task)

    def task_by_id(self, task: str) -> TaskRow | None:
        row = self._session.first(TaskRow, _BY_ID, task=task)
        return None if row is None else self._composed(row)

    def tasks_by_ids(self, ids: Collection[str]) -> list[TaskRow]:
        return [self._composed(row) for row in self._session.all(TaskRow, _BY_IDS, ids=ids)]

    def _composed(self, row: TaskRow) -> TaskRow:
        """The task with the changes that follow its snapshot."""
        if row.seq == row.snapshot_seq:
            return row
        found = self._session.rows(_SINCE, of=row.id, after=row.snapshot_seq, upto=row.seq)
        return composed(row, found)

    def tasks_by_prefix(self, prefix: str, limit: int = 2, party: str = "") -> list[TaskHead]:
        found = select(*HEAD).where(a2a_tasks.c.id >= prefix, a2a_tasks.c.id < prefix + "g")
        if party:
            found = found.where(_of_party(party))
        return self._session.all(TaskHead, found.order_by(a2a_tasks.c.id).limit(page(limit)))

    def events_of(self, task: str, after: int = 0, limit: int = 100) -> list[TaskEventRow]:
        most = page(limit)
        return self._session.all(TaskEventRow, _EVENTS_OF, of=task, after=after, most=most)

    def events_at(self, seqs: Collection[int]) -> list[TaskEventRow]:
        return sorted(self._session.all(TaskEventRow, _EVENTS_AT, seqs=seqs), key=attrgetter("seq"))

    def list_tasks(
        self,
        *,
        worker: str = "",
        requester: str = "",
        states: Collection[str] = (),
        open_only: bool | None = None,
        limit: int,
        before: int = 0,
        party: str = "",
        door: str = "",
    ) -> list[TaskHead]:
        found = select(*HEAD).order_by(a2a_tasks.c.requested_seq.desc()).limit(page(limit))
        if worker:
            found = found.where(a2a_tasks.c.worker == worker)
        if requester:
            found = found.where(a2a_tasks.c.requester == requester)
        if party:
            found = found.where(_of_party(party))
        if door:
            found = found.where(a2a_tasks.c.door == door)
        if states:
            found = found.where(a2a_tasks.c.state.in_(states))
        if open_only is not None:
            found = found.where(_OPEN if open_only else ~_OPEN)
        if before:
            found = found.where(a2a_tasks.c.requested_seq < before)
        return self._session.all(TaskHead, found)

    def retries_of(self, task: str) -> list[TaskHead]:
        return self._session.all(TaskHead, _RETRIES, of=task)

    def updated(
        self,
        *,
        worker: str = "",
        requester: str = "",
        context: str = "",
        state: str = "",
        since: float = 0.0,
        past: tuple[float, str] | None = None,
        limit: int,
    ) -> tuple[list[tuple[float, str]], int]:
        given = {
            a2a_tasks.c.worker: worker,
            a2a_tasks.c.requester: requester,
            a2a_tasks.c.context_id: context,
            a2a_tasks.c.state: state,
        }
        wanted = [column == value for column, value in given.items() if value]
        wanted += [a2a_tasks.c.updated_at >= since] if since else []
        total = self._session.scalar(select(func.count()).select_from(a2a_tasks).where(*wanted))
        at, task = a2a_tasks.c.updated_at, a2a_tasks.c.id
        if past is not None:
            wanted.append(or_(at < past[0], and_(at == past[0], task < past[1])))
        found = select(at, task).where(*wanted).order_by(at.desc(), task.desc()).limit(page(limit))
        return [(float(when), name) for when, name in self._session.rows(found)], total or 0

    def open_tasks(
        self, worker: str, after: int = 0, limit: int = 500, *, taken: bool = True
    ) -> list[TaskHead]:
        whose = and_(a2a_tasks.c.worker == worker, a2a_tasks.c.seq > 0 if taken else _UNTAKEN)
        found = select(*HEAD).where(_OPEN, whose)
        found = found.where(a2a_tasks.c.requested_seq > after).order_by(a2a_tasks.c.requested_seq)
        return self._session.all(TaskHead, found.limit(page(limit)))

    def queue(self, worker: str, limit: int = 500) -> list[tuple[int, str]]:
        return self._session.rows(_QUEUE, of=worker, most=limit)

    def counts(self) -> dict[str, int]:
        return dict(self._session.rows(_COUNTS))

    def states(self) -> dict[str, int]:
        return dict(self._session.rows(_STATES))

    def current(self) -> dict[str, TaskHead]:
        working = a2a_tasks.c.state == TaskState.WORKING.value
        turn = func.row_number().over(
            partition_by=a2a_tasks.c.worker,
            order_by=(case((working, 0), else_=1), a2a_tasks.c.requested_seq),
        )
        states = [TaskState.WORKING.value, *_INTERRUPTED]
        ranked = select(a2a_tasks.c.id, turn.label("turn")).where(
            _OPEN, a2a_tasks.c.state.in_(states)
        )
        first = ranked.subquery()
        found = select(*HEAD).join(first, first.c.id == a2a_tasks.c.id).where(first.c.turn == 1)
        return {task.worker: task for task in self._session.all(TaskHead, found)}

    def interrupted(self) -> list[TaskHead]:
        turn = func.row_number().over(
            partition_by=a2a_tasks.c.worker, order_by=a2a_tasks.c.requested_seq
        )
        asking = select(a2a_tasks.c.id, turn.label("turn"))
        ranked = asking.where(_OPEN, a2a_tasks.c.state.in_(_INTERRUPTED)).subquery()
        found = select(*HEAD).join(ranked, ranked.c.id == a2a_tasks.c.id)
        found = found.where(ranked.c.turn <= MAX_ASKING).order_by(a2a_tasks.c.requested_seq)
        return self._session.all(TaskHead, found.limit(MAX_PAGE))

    def silent(self, workers: Collection[str], before: float) -> list[TaskHead]:
        return self._session.all(TaskHead, _SILENT, workers=workers, before=before)

    def untaken_tasks(self, after: int = 0) -> list[TaskRow]:
        return self._session.all(TaskRow, _UNTAKEN_TASKS, after=after)

    def open_of(self, worker: str, after: int = 0) -> list[TaskRow]:
        found = self._session.all(TaskRow, _OPEN_OF, of=worker, after=after)
        return [self._composed(row) for row in found]

    def begun(self, tasks: Collection[str]) -> dict[str, float]:
        found = self._session.rows(_BEGUN, ids=tasks)
        return {task: at for task, at in found if at is not None}

    def heads_by_ids(self, ids: Collection[str]) -> list[TaskHead]:
        return self._session.all(TaskHead, _HEADS_BY_IDS, ids=ids)

    def heads_by_requests(self, seqs: Collection[int]) -> list[TaskHead]:
        return self._session.all(TaskHead, _HEADS_BY_REQUESTS, seqs=seqs)

    def events_past(self, after: int, limit: int) -> list[TaskEventRow]:
        found = select(*EVENT).where(a2a_task_events.c.seq > after).order_by(a2a_task_events.c.seq)
        return self._session.all(TaskEventRow, found.limit(page(limit)))

    def requested_past(self, after: int, limit: int) -> list[TaskHead]:
        found = select(*HEAD).where(a2a_tasks.c.requested_seq > after)
        found = found.order_by(a2a_tasks.c.requested_seq)
        return self._session.all(TaskHead, found.limit(page(limit)))

    def milestones(
        self, workers: Collection[str], after: int | None, limit: int, before: int
    ) -> list[TaskEventRow]:
        earlier = a2a_task_events.alias("earlier")
        began = ~exists().where(
            earlier.c.task == a2a_task_events.c.task,
            earlier.c.seq < a2a_task_events.c.seq,
            earlier.c.state == TaskState.WORKING.value,
        )
        found = select(*EVENT).where(
            a2a_task_events.c.worker.in_(workers),
            a2a_task_events.c.state != TaskState.SUBMITTED.value,
            or_(a2a_task_events.c.state != TaskState.WORKING.value, began),
        )
        seq = a2a_task_events.c.seq
        if after is None:
            newest = found.where(seq < before).order_by(seq.desc()).limit(page(limit))
            return self._session.all(TaskEventRow, newest)[::-1]
        past = found.where(seq > after).order_by(seq).limit(page(limit))
        return self._session.all(TaskEventRow, past)

    def ended(self, after: int, limit: int, *, sized: bool = True) -> list[Ended]:
        rows = self._session.rows(_TASKS if sized else _TASKS_UNSIZED, after=after, most=limit)
        return [
            Ended(seq, task, (worker,), created, ended, int(size))
            for seq, task, worker, created, ended, size in rows
        ]

    def progress(self, ids: Collection[str]) -> dict[str, tuple[int, int]]:
        counted = self._session.rows(_COUNT_PROGRESS, ids=ids)
        return {task: (number, int(size)) for task, number, size in counted}

    def sizes(self) -> dict[str, tuple[int, int]]:
        tasks = dict(self._session.rows(_TASK_SIZES))
        events = dict(self._session.rows(_EVENT_SIZES))
        return {
            worker: (int(tasks.get(worker, 0)), int(events.get(worker, 0)))
            for worker in {*tasks, *events}
        }

    def forget(self, ids: Collection[str]) -> None:
        self._session.run(_FORGET_EVENTS, {"ids": ids})
        self._session.run(_FORGET_TASKS, {"ids": ids})

    def forget_progress(self, ids: Collection[str]) -> None:
        self._session.run(_FORGET_PROGRESS, {"ids": ids})


def _of_party(uid: str) -> ColumnElement[bool]:
    return or_(a2a_tasks.c.worker == uid, a2a_tasks.c.requester == uid)


def composed(row: TaskRow, changes: Iterable[tuple[str, str]]) -> TaskRow:
    """The task with the changes past its snapshot, each an event and an answer as JSON texts, "" for no answer."""
    said = [
        (json.loads(event), json.loads(answer) if answer else None) for event, answer in changes
    ]
    task = compose(json.loads(row.snapshot), said)
    return replace(row, snapshot=strict_json.dumps(task).decode())
