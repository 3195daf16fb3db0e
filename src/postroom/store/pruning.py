"""What has ended and may be given up: messages, tasks, their events, and posts, a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Function,
    Integer,
    Select,
    and_,
    delete,
    exists,
    false,
    func,
    select,
    true,
)
from sqlalchemy.ext.compiler import compiles

from postroom.store.schema import (
    a2a_task_events,
    a2a_tasks,
    deadletters,
    memberships,
    messages,
    posts,
    workers,
)


class octets(Function):  # noqa: N801 (it is written like a function of SQL)
    """Bytes of a text."""

    type = Integer()
    inherit_cache = True

    def __init__(self, column: ColumnElement) -> None:
        super().__init__("octet_length", column)


@compiles(octets, "sqlite")
def _octets_sqlite(element: octets, compiler: Any, **options: Any) -> str:
    # `octet_length` came with 3.43.
    inner = compiler.process(element.clauses, **options)
    return f"length(CAST({inner} AS BLOB))"


@dataclass(frozen=True, slots=True)
class Ended:
    """Something that has ended.

    Attributes:
        key: what a page goes on from.
        id: of the message or the task.
        parties: whose project it may belong to, the first that has one.
        project: itself, where it says one.
        began_at: grows with `key`.
        size: bytes of its texts.
        reply_to: id of the message that it answers.
        number: rows; more than one only for events.
    """

    key: int
    id: str
    parties: tuple[str, ...]
    began_at: float
    ended_at: float
    size: int
    project: str = ""
    reply_to: str = ""
    number: int = 1


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of thing.

    Attributes:
        page: the first things past a key that have ended, in the order of their keys.
        sizes: bytes of all of that kind, open ones too, by parties or project.
        held: those of some things that must stay, by key; `gone` are keys that go in the same run.
        give_up: deletes things.
    """

    page: Callable[[Connection, int, int], list[Ended]]
    sizes: Callable[[Connection], list[tuple[tuple[str, ...], str, int]]]
    held: Callable[[Connection, Sequence[Ended], Collection[int]], set[int]]
    give_up: Callable[[Connection, Sequence[Ended]], None]


def projects_of_agents(connection: Connection) -> dict[str, str]:
    """The project of each worker, removed ones too."""
    found = select(memberships.c.uid, memberships.c.project).order_by(memberships.c.project.desc())
    ruled = select(workers.c.uid, workers.c.project)
    rows = (*connection.execute(found), *connection.execute(ruled))
    return {row.uid: row.project for row in rows}


def forget_dropped(connection: Connection, before: float) -> int:
    """Delete dead letters that were dropped before `before`; returns how many."""
    old = deadletters.c.dropped_at < before
    return connection.execute(delete(deadletters).where(old)).rowcount


# ── messages ────────────────────────────────────────────────────────────────────────────────────────────────

_MESSAGE = [
    messages.c.seq,
    messages.c.id,
    messages.c.sender,
    messages.c.recipient,
    messages.c.stored_at,
    messages.c.updated_at,
    messages.c.reply_to,
    (octets(messages.c.text) + octets(messages.c.message)).label("size"),
]
_LETTER = exists().where(
    and_(
        deadletters.c.message_id == messages.c.id,
        deadletters.c.sender == messages.c.sender,
        deadletters.c.dropped_at.is_(None),
    )
)


def _messages(connection: Connection, after: int, limit: int) -> list[Ended]:
    found = select(*_MESSAGE).where(messages.c.seq > after, messages.c.final == true(), ~_LETTER)
    rows = connection.execute(found.order_by(messages.c.seq).limit(limit))
    return [
        Ended(
            row.seq,
            row.id,
            (row.recipient, row.sender),
            row.stored_at,
            row.updated_at,
            row.size,
            reply_to=row.reply_to,
        )
        for row in rows
    ]


def _message_sizes(connection: Connection) -> list[tuple[tuple[str, ...], str, int]]:
    size = func.sum(octets(messages.c.text) + octets(messages.c.message))
    found = select(messages.c.recipient, messages.c.sender, size)
    rows = connection.execute(found.group_by(messages.c.recipient, messages.c.sender))
    return [((recipient, sender), "", int(total)) for recipient, sender, total in rows]


def _held_messages(
    connection: Connection, chosen: Sequence[Ended], gone: Collection[int]
) -> set[int]:
    """Requests go with their tasks, and an answer not before its question: that one shows it."""
    keys = [row.key for row in chosen]
    asked = select(a2a_tasks.c.requested_seq).where(a2a_tasks.c.requested_seq.in_(keys))
    held = set(connection.scalars(asked))
    names = {row.reply_to for row in chosen if row.reply_to}
    questions: dict[tuple[str, tuple[str, ...]], int] = {}
    if names:
        found = select(messages.c.id, messages.c.sender, messages.c.recipient, messages.c.seq)
        for name, sender, recipient, seq in connection.execute(
            found.where(messages.c.id.in_(names))
        ):
            questions[name, (sender, recipient)] = seq
    going = set(keys) - held
    for row in chosen:  # a question comes before its answer
        question = questions.get((row.reply_to, row.parties))
        if question is not None and question not in gone and question not in going:
            held.add(row.key)
            going.discard(row.key)
    return held


def _give_up_messages(connection: Connection, chosen: Sequence[Ended]) -> None:
    connection.execute(delete(messages).where(messages.c.seq.in_([row.key for row in chosen])))


# ── tasks and their events ──────────────────────────────────────────────────────────────────────────────────


def _tasks(connection: Connection, after: int, limit: int) -> list[Ended]:
    events = (
        select(func.coalesce(func.sum(octets(a2a_task_events.c.event)), 0))
        .where(a2a_task_events.c.task == a2a_tasks.c.id)
        .scalar_subquery()
    )
    size = octets(a2a_tasks.c.text) + octets(a2a_tasks.c.snapshot) + events
    return _ended_tasks(connection, select(*_TASK, size.label("size")), after, limit)


_TASK = [
    a2a_tasks.c.requested_seq,
    a2a_tasks.c.id,
    a2a_tasks.c.worker,
    a2a_tasks.c.created_at,
    a2a_tasks.c.updated_at,
]


def _ended_tasks(connection: Connection, found: Select, after: int, limit: int) -> list[Ended]:
    found = found.where(a2a_tasks.c.requested_seq > after, a2a_tasks.c.final == true())
    rows = connection.execute(found.order_by(a2a_tasks.c.requested_seq).limit(limit))
    return [
        Ended(seq, task, (worker,), created, ended, size)
        for seq, task, worker, created, ended, size in rows
    ]


def _task_sizes(connection: Connection) -> list[tuple[tuple[str, ...], str, int]]:
    size = func.sum(octets(a2a_tasks.c.text) + octets(a2a_tasks.c.snapshot))
    rows = connection.execute(select(a2a_tasks.c.worker, size).group_by(a2a_tasks.c.worker))
    return [((worker,), "", int(total)) for worker, total in rows] + _event_sizes(connection)


def _held_tasks(connection: Connection, chosen: Sequence[Ended], _: Collection[int]) -> set[int]:
    """A task stays as long as its request is open: that waits for a receipt about it."""
    keys = [row.key for row in chosen]
    found = select(messages.c.seq).where(messages.c.seq.in_(keys), messages.c.final == false())
    return set(connection.scalars(found))


def _give_up_tasks(connection: Connection, chosen: Sequence[Ended]) -> None:
    names = [row.id for row in chosen]
    connection.execute(delete(a2a_task_events).where(a2a_task_events.c.task.in_(names)))
    connection.execute(delete(a2a_tasks).where(a2a_tasks.c.id.in_(names)))
    _give_up_messages(connection, chosen)


def _progress(names: Sequence[str]) -> ColumnElement[bool]:
    """The events that are neither the first of a state nor, so, the last of their task."""
    firsts = (
        select(func.min(a2a_task_events.c.seq))
        .where(a2a_task_events.c.task.in_(names))
        .group_by(a2a_task_events.c.task, a2a_task_events.c.state)
    )
    return and_(a2a_task_events.c.task.in_(names), a2a_task_events.c.seq.not_in(firsts))


def _events(connection: Connection, after: int, limit: int) -> list[Ended]:
    found = select(*_TASK, func.length("").label("size"))
    ended = _ended_tasks(connection, found, after, limit)
    counted = select(
        a2a_task_events.c.task, func.count(), func.sum(octets(a2a_task_events.c.event))
    ).where(_progress([row.id for row in ended]))
    sizes = {
        task: (number, int(size))
        for task, number, size in connection.execute(counted.group_by(a2a_task_events.c.task))
    }
    return [
        Ended(row.key, row.id, row.parties, row.began_at, row.ended_at, size, number=number)
        for row in ended
        for number, size in [sizes.get(row.id, (0, 0))]
    ]


def _event_sizes(connection: Connection) -> list[tuple[tuple[str, ...], str, int]]:
    size = func.sum(octets(a2a_task_events.c.event))
    found = select(a2a_task_events.c.worker, size).group_by(a2a_task_events.c.worker)
    return [((worker,), "", int(total)) for worker, total in connection.execute(found)]


def _give_up_events(connection: Connection, chosen: Sequence[Ended]) -> None:
    connection.execute(delete(a2a_task_events).where(_progress([row.id for row in chosen])))


# ── posts ───────────────────────────────────────────────────────────────────────────────────────────────────


def _posts(connection: Connection, after: int, limit: int) -> list[Ended]:
    size = octets(posts.c.text) + octets(posts.c.message)
    found = select(posts.c.seq, posts.c.id, posts.c.at, posts.c.project, size)
    rows = connection.execute(found.where(posts.c.seq > after).order_by(posts.c.seq).limit(limit))
    return [Ended(seq, name, (), at, at, size, project) for seq, name, at, project, size in rows]


def _post_sizes(connection: Connection) -> list[tuple[tuple[str, ...], str, int]]:
    size = func.sum(octets(posts.c.text) + octets(posts.c.message))
    rows = connection.execute(select(posts.c.project, size).group_by(posts.c.project))
    return [((), project, int(total)) for project, total in rows]


def _give_up_posts(connection: Connection, chosen: Sequence[Ended]) -> None:
    connection.execute(delete(posts).where(posts.c.seq.in_([row.key for row in chosen])))


def _nothing_held(*_: object) -> set[int]:
    return set()


KINDS = {
    "messages": Kind(_messages, _message_sizes, _held_messages, _give_up_messages),
    "tasks": Kind(_tasks, _task_sizes, _held_tasks, _give_up_tasks),
    "events": Kind(_events, _event_sizes, _nothing_held, _give_up_events),
    "posts": Kind(_posts, _post_sizes, _nothing_held, _give_up_posts),
}
"""The kinds that a rule of retention may name."""
