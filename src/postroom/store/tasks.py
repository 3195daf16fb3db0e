"""A2A tasks and their changes, as rows of the projection."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields, replace

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    case,
    exists,
    false,
    func,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert

from postroom.protocol.limits import MAX_PAGE, MAX_SHOWN_TEXT
from postroom.protocol.receipts import State
from postroom.store.messages import page
from postroom.store.rows import all_of, first_of
from postroom.store.schema import a2a_task_events, a2a_tasks, agents, messages
from postroom_a2a.task_state import INTERRUPTED, TaskState
from postroom_a2a.tasks import compose

BATCH = 256
"""The most tasks of one query by the post office; the next query finds the rest."""


MAX_ASKING = 20
"""Questions of one worker that lists show, so that no worker crowds out the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHead:
    """A task without its snapshot, which may be large; lists show it.

    Attributes:
        id: `protocol.tasks.task_id` of worker, requester and request.
        worker, requester: uids.
        request: id of the message that asked.
        requested_seq: sequence of that message in INBOX.
        skill: id of the wanted skill, "" for any.
        stream: the requester wants to hear of every change.
        text: of the request, in lists its first `MAX_SHOWN_TEXT` characters.
        seq: sequence in TASKS of the last record that counted, 0 before the first.
        attempt, lost, runner, released: as in that record (`tasks.records.TaskRecord`).
        said: the beginning of the text with the present state.
        snapshot_seq: sequence in TASKS of the last record with a snapshot, 0 for the request.
        weight, since: as `tasks.weight.Weight` has them.
        final: no further state follows.
        created_at: when the request was stored.
        updated_at: when the last record that counted was stored.
    """

    id: str
    worker: str
    requester: str
    request: str
    requested_seq: int
    context_id: str
    text: str
    created_at: float
    updated_at: float
    skill: str = ""
    stream: bool = False
    state: str = TaskState.SUBMITTED.value
    seq: int = 0
    attempt: int = 0
    lost: int = 0
    runner: str = ""
    released: bool = False
    said: str = ""
    snapshot_seq: int = 0
    weight: int = 0
    since: int = 0
    final: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow(TaskHead):
    """A task with all that was said.

    Attributes:
        snapshot: the A2A Task as it is, as JSON text.
    """

    snapshot: str


@dataclass(frozen=True, slots=True)
class TaskEventRow:
    """A record of TASKS that counted.

    Attributes:
        worker: uid.
        event: A2A StreamResponse, as JSON text; "" for the first record, which is the task itself.
        answer: the A2A Message that the event brings into the history, as JSON text; "" for none, and where a snapshot
            has it.
    """

    seq: int
    task: str
    worker: str
    state: str
    attempt: int
    runner: str
    at: float
    event: str
    answer: str = ""


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
# A task that nobody has taken: its row has the snapshot.
_NEW = [a2a_tasks.c[field.name] for field in fields(TaskRow)]
EVENT = [a2a_task_events.c[field.name] for field in fields(TaskEventRow)]

# Rendered as `final = 0`, the exact words of the partial indexes.
_OPEN = a2a_tasks.c.final == false()
_UNTAKEN = and_(_OPEN, a2a_tasks.c.seq == literal_column("0"))

_CHANGING = (
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
_AMONG = a2a_tasks.c.requested_seq.in_(bindparam("seqs", expanding=True))

_INSERT = insert(a2a_tasks).on_conflict_do_nothing()
_UPDATE = update(a2a_tasks).where(a2a_tasks.c.id == bindparam("task"))
_INSERT_EVENT = insert(a2a_task_events).on_conflict_do_nothing()
_HEAD_BY_ID = select(*HEAD).where(a2a_tasks.c.id == bindparam("task"))
_BY_ID = _WHOLE.where(a2a_tasks.c.id == bindparam("task"))
_BY_IDS = _WHOLE.where(a2a_tasks.c.id.in_(bindparam("ids", expanding=True)))
_SINCE = (
    select(a2a_task_events.c.event, a2a_task_events.c.answer)
    .where(a2a_task_events.c.task == bindparam("of"))
    .where(a2a_task_events.c.seq > bindparam("after"), a2a_task_events.c.seq <= bindparam("upto"))
    .order_by(a2a_task_events.c.seq)
)
_DROP_SNAPSHOT = (
    update(a2a_task_events).where(a2a_task_events.c.seq == bindparam("at_seq")).values(snapshot="")
)
_EVENTS_AT = (
    select(*EVENT)
    .where(a2a_task_events.c.seq.in_(bindparam("seqs", expanding=True)))
    .order_by(a2a_task_events.c.seq)
)
_QUEUE = (
    select(a2a_tasks.c.requested_seq, a2a_tasks.c.state)
    .where(_OPEN, a2a_tasks.c.worker == bindparam("of"), a2a_tasks.c.seq > 0)
    .where(a2a_tasks.c.state.in_((TaskState.SUBMITTED.value, TaskState.WORKING.value)))
    .order_by(a2a_tasks.c.requested_seq)
    .limit(bindparam("most"))
)
_UNDELIVERED = (
    select(*_NEW, messages.c.reason)
    .join(messages, messages.c.seq == a2a_tasks.c.requested_seq)
    .where(_UNTAKEN, _PAST, messages.c.state == State.DEAD.value)
    .order_by(a2a_tasks.c.requested_seq)
    .limit(BATCH)
)
_UNDELIVERED_AMONG = _UNDELIVERED.where(_AMONG)
_NOBODY = or_(agents.c.uid.is_(None), agents.c.retired_at.is_not(None))
_MISDIRECTED = (
    select(*_NEW)
    .outerjoin(agents, agents.c.uid == a2a_tasks.c.worker)
    .outerjoin(messages, messages.c.seq == a2a_tasks.c.requested_seq)
    .where(_UNTAKEN, _PAST)
    # Where the request has a row, its own end says that the recipient is gone.
    .where(or_(agents.c.kind == "human", and_(messages.c.seq.is_(None), _NOBODY)))
    .order_by(a2a_tasks.c.requested_seq)
    .limit(BATCH)
)
_MISDIRECTED_AMONG = _MISDIRECTED.where(_AMONG)
_UNSEEN = messages.c.state.in_((State.ACCEPTED.value, State.DELIVERED.value))
_BEHIND = (
    select(*HEAD)
    .join(messages, messages.c.seq == a2a_tasks.c.requested_seq)
    .where(messages.c.final == false(), a2a_tasks.c.seq > 0)
    .where(or_(a2a_tasks.c.final, _UNSEEN), _PAST)
    .order_by(a2a_tasks.c.requested_seq)
    .limit(BATCH)
)
_BEHIND_AMONG = _BEHIND.where(a2a_tasks.c.id.in_(bindparam("ids", expanding=True)))

_UNTAKEN_AMONG = select(a2a_tasks.c.worker, a2a_tasks.c.id).where(_UNTAKEN, _AMONG)


def insert_task(connection: Connection, row: TaskRow) -> bool:
    """Store a new task; False without effect if one has that id or request."""
    return connection.execute(_INSERT, asdict(row)).rowcount == 1


def record_change(
    connection: Connection, head: TaskHead, change: TaskEventRow, snapshot: str = ""
) -> None:
    """Store a change of a task, and the task as it is now; requester, worker and request stay.

    Args:
        head: the task after the change. Its `snapshot_seq` is that of the change, if that has a snapshot.
        snapshot: A2A Task as JSON text, in place of the one before; "" if the change has none.
    """
    fresh = {"snapshot": ""} if snapshot else {}
    changes = {name: getattr(head, name) for name in _CHANGING} | fresh
    connection.execute(_UPDATE, {"task": head.id, **changes})
    connection.execute(_INSERT_EVENT, {**asdict(change), "snapshot": snapshot})


def drop_snapshot(connection: Connection, seq: int) -> None:
    """Forget the snapshot of the change at `seq`: a later one has the next."""
    connection.execute(_DROP_SNAPSHOT, {"at_seq": seq})


def head_by_id(connection: Connection, task: str) -> TaskHead | None:
    """The task with that id, without its snapshot."""
    return first_of(connection, TaskHead, _HEAD_BY_ID, task=task)


def task_by_id(connection: Connection, task: str) -> TaskRow | None:
    """The task with that id."""
    row = first_of(connection, TaskRow, _BY_ID, task=task)
    return None if row is None else _composed(connection, row)


def tasks_by_ids(connection: Connection, ids: Collection[str]) -> list[TaskRow]:
    """The tasks with those ids, in no order."""
    return [
        _composed(connection, row) for row in all_of(connection, TaskRow, _BY_IDS, ids=list(ids))
    ]


def _composed(connection: Connection, row: TaskRow) -> TaskRow:
    """The task with the changes that follow its snapshot."""
    if row.seq == row.snapshot_seq:
        return row
    span = {"of": row.id, "after": row.snapshot_seq, "upto": row.seq}
    changes = [
        (json.loads(event), json.loads(answer) if answer else None)
        for event, answer in connection.execute(_SINCE, span)
    ]
    task = compose(json.loads(row.snapshot), changes)
    return replace(row, snapshot=json.dumps(task, separators=(",", ":"), ensure_ascii=False))


def tasks_by_prefix(connection: Connection, prefix: str, limit: int = 2) -> list[TaskHead]:
    """The first tasks whose id has that hexadecimal prefix."""
    found = select(*HEAD).where(a2a_tasks.c.id >= prefix, a2a_tasks.c.id < prefix + "g")
    return all_of(connection, TaskHead, found.order_by(a2a_tasks.c.id).limit(page(limit)))


def events_of(
    connection: Connection, task: str, after: int = 0, limit: int = 100
) -> list[TaskEventRow]:
    """Changes of a task past sequence `after`, in their order."""
    found = select(*EVENT).where(a2a_task_events.c.task == task, a2a_task_events.c.seq > after)
    found = found.order_by(a2a_task_events.c.seq).limit(page(limit))
    return all_of(connection, TaskEventRow, found)


def events_at(connection: Connection, seqs: Collection[int]) -> list[TaskEventRow]:
    """The changes in those records of TASKS, in their order."""
    return all_of(connection, TaskEventRow, _EVENTS_AT, seqs=list(seqs))


def list_tasks(
    connection: Connection,
    *,
    worker: str = "",
    requester: str = "",
    states: Collection[str] = (),
    open_only: bool | None = None,
    limit: int,
    before: int = 0,
) -> list[TaskHead]:
    """Tasks, the newest request first.

    Args:
        worker, requester: uids; "" for any.
        states: only tasks in one of them; empty for any.
        open_only: only open (True) or final tasks (False).
        before: only tasks requested before this sequence of INBOX (`requested_seq`).
    """
    found = select(*HEAD).order_by(a2a_tasks.c.requested_seq.desc()).limit(page(limit))
    if worker:
        found = found.where(a2a_tasks.c.worker == worker)
    if requester:
        found = found.where(a2a_tasks.c.requester == requester)
    if states:
        found = found.where(a2a_tasks.c.state.in_(states))
    if open_only is not None:
        found = found.where(_OPEN if open_only else ~_OPEN)
    if before:
        found = found.where(a2a_tasks.c.requested_seq < before)
    return all_of(connection, TaskHead, found)


def open_tasks(
    connection: Connection, worker: str, after: int = 0, limit: int = 500, *, taken: bool = True
) -> list[TaskHead]:
    """A worker's open tasks past INBOX `after`, in the order of their requests: those that it has taken or, without
    `taken`, those that it has not.
    """
    whose = and_(a2a_tasks.c.worker == worker, a2a_tasks.c.seq > 0 if taken else _UNTAKEN)
    found = select(*HEAD).where(_OPEN, whose)
    found = found.where(a2a_tasks.c.requested_seq > after).order_by(a2a_tasks.c.requested_seq)
    return all_of(connection, TaskHead, found.limit(page(limit)))


def untaken(connection: Connection, seqs: Collection[int]) -> dict[str, str]:
    """Each worker with an untaken task among the requests at `seqs` of INBOX, with one such task."""
    found = connection.execute(_UNTAKEN_AMONG, {"seqs": list(seqs)})
    return {row.worker: row.id for row in found}


def queue(connection: Connection, worker: str, limit: int = 500) -> list[tuple[int, str]]:
    """The tasks that a worker has taken and not ended: (`requested_seq`, state), in the order of the requests."""
    found = connection.execute(_QUEUE, {"of": worker, "most": limit})
    return [(requested, state) for requested, state in found]


def counts(connection: Connection) -> dict[str, int]:
    """The number of open tasks of each worker that has any, untaken ones too."""
    found = select(a2a_tasks.c.worker, func.count()).where(_OPEN).group_by(a2a_tasks.c.worker)
    return {row[0]: row[1] for row in connection.execute(found)}


def current(connection: Connection) -> dict[str, TaskHead]:
    """The current task of each worker: the one that runs, else the oldest that waits for an answer."""
    working = a2a_tasks.c.state == TaskState.WORKING.value
    turn = func.row_number().over(
        partition_by=a2a_tasks.c.worker,
        order_by=(case((working, 0), else_=1), a2a_tasks.c.requested_seq),
    )
    states = [TaskState.WORKING.value, *_INTERRUPTED]
    ranked = select(a2a_tasks.c.id, turn.label("turn")).where(_OPEN, a2a_tasks.c.state.in_(states))
    first = ranked.subquery()
    found = select(*HEAD).join(first, first.c.id == a2a_tasks.c.id).where(first.c.turn == 1)
    return {task.worker: task for task in all_of(connection, TaskHead, found)}


def interrupted(connection: Connection) -> list[TaskHead]:
    """At most `MAX_PAGE` tasks that wait for an answer (`MAX_ASKING` of one worker), the oldest request first."""
    turn = func.row_number().over(
        partition_by=a2a_tasks.c.worker, order_by=a2a_tasks.c.requested_seq
    )
    asking = select(a2a_tasks.c.id, turn.label("turn"))
    ranked = asking.where(_OPEN, a2a_tasks.c.state.in_(_INTERRUPTED)).subquery()
    found = select(*HEAD).join(ranked, ranked.c.id == a2a_tasks.c.id)
    found = found.where(ranked.c.turn <= MAX_ASKING).order_by(a2a_tasks.c.requested_seq)
    return all_of(connection, TaskHead, found.limit(MAX_PAGE))


def undelivered_dead(
    connection: Connection, after: int = 0, *, seqs: Collection[int] | None = None
) -> list[tuple[TaskRow, str]]:
    """Untaken tasks whose request is dead, each with the reason.

    Args:
        after: only requests past this sequence of INBOX.
        seqs: only requests at these sequences; None for all.
    """
    found = (
        connection.execute(_UNDELIVERED, {"after": after})
        if seqs is None
        else connection.execute(_UNDELIVERED_AMONG, {"after": after, "seqs": list(seqs)})
    )
    return [
        (TaskRow(**{name: row[name] for name in row if name != "reason"}), row["reason"])
        for row in found.mappings()
    ]


def misdirected(
    connection: Connection, after: int = 0, *, seqs: Collection[int] | None = None
) -> list[TaskRow]:
    """Tasks that no worker will ever take: the request went to a person, or to nobody by a message that is a copy.

    Arguments as above.
    """
    if seqs is None:
        return all_of(connection, TaskRow, _MISDIRECTED, after=after)
    return all_of(connection, TaskRow, _MISDIRECTED_AMONG, after=after, seqs=list(seqs))


def orphaned(connection: Connection, after: int = 0) -> list[TaskRow]:
    """Open tasks, taken by a worker that is now retired, past INBOX `after`."""
    retired = exists().where(
        and_(agents.c.uid == a2a_tasks.c.worker, agents.c.retired_at.is_not(None))
    )
    found = _WHOLE.where(_OPEN, a2a_tasks.c.seq > 0, retired)
    found = found.where(a2a_tasks.c.requested_seq > after).order_by(a2a_tasks.c.requested_seq)
    rows = all_of(connection, TaskRow, found.limit(BATCH))
    return [_composed(connection, row) for row in rows]


def behind(
    connection: Connection, after: int = 0, *, ids: Collection[str] | None = None
) -> list[tuple[TaskHead, State]]:
    """Tasks whose request does not show yet that they were taken or have ended, each with the missing state.

    Args:
        after: only requests past this sequence of INBOX.
        ids: only these tasks; None for all.
    """
    heads = (
        all_of(connection, TaskHead, _BEHIND, after=after)
        if ids is None
        else all_of(connection, TaskHead, _BEHIND_AMONG, after=after, ids=list(ids))
    )
    return [(head, State.ANSWERED if head.final else State.SEEN) for head in heads]


def begun(connection: Connection, tasks: Collection[str]) -> dict[str, float]:
    """The instant of each task's first attempt; a task without one is left out."""
    of_it = and_(
        a2a_task_events.c.task == a2a_tasks.c.id, a2a_task_events.c.state == TaskState.WORKING.value
    )
    first = select(a2a_task_events.c.at).where(of_it).order_by(a2a_task_events.c.seq).limit(1)
    found = select(a2a_tasks.c.id, first.correlate(a2a_tasks).scalar_subquery())
    rows = connection.execute(found.where(a2a_tasks.c.id.in_(tasks)))
    return {task: at for task, at in rows if at is not None}


def heads_by_ids(connection: Connection, ids: Collection[str]) -> list[TaskHead]:
    """The tasks with those ids, without their snapshots, in no order."""
    return all_of(connection, TaskHead, select(*HEAD).where(a2a_tasks.c.id.in_(ids)))


def events_past(connection: Connection, after: int, limit: int) -> list[TaskEventRow]:
    """The first changes of all tasks past sequence `after`, in their order."""
    found = select(*EVENT).where(a2a_task_events.c.seq > after).order_by(a2a_task_events.c.seq)
    return all_of(connection, TaskEventRow, found.limit(page(limit)))


def requested_past(connection: Connection, after: int, limit: int) -> list[TaskHead]:
    """The first tasks requested past sequence `after` of INBOX, in that order."""
    found = select(*HEAD).where(a2a_tasks.c.requested_seq > after)
    found = found.order_by(a2a_tasks.c.requested_seq)
    return all_of(connection, TaskHead, found.limit(page(limit)))
