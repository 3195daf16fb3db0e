"""Queries over messages that are not final: due ones, and ones that can never be delivered."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, and_, bindparam, exists, false, func, or_, select

from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.receipts import State
from postroom.store.alerts import STALE
from postroom.store.messages import COLUMNS, MessageRow, rows
from postroom.store.schema import a2a_tasks, agents, alerts, messages

BATCH = 256
"""The most messages of one query (at least a batch of the fold); the next query finds the rest."""

# Rendered as `final = 0`, the exact words of the partial indexes; with `IS` SQLite would use none of them.
_OPEN = messages.c.final == false()


_KNOWN = exists().where(agents.c.uid == messages.c.recipient).correlate(messages).label("known")
_LIVE = (
    exists()
    .where(and_(agents.c.uid == messages.c.recipient, agents.c.retired_at.is_(None)))
    .correlate(messages)
)
# The request of a task that a worker has taken: it ends with the task.
_TAKEN = (
    exists()
    .where(and_(a2a_tasks.c.requested_seq == messages.c.seq, a2a_tasks.c.seq > 0))
    .correlate(messages)
)
_PAST = messages.c.seq > bindparam("after")
_SEQS = bindparam("seqs", expanding=True)
_UNADDRESSABLE = (
    select(*COLUMNS, _KNOWN)
    .where(_OPEN, ~_LIVE, ~_TAKEN, _PAST)
    .order_by(messages.c.seq)
    .limit(BATCH)
)
_UNADDRESSABLE_AMONG = _UNADDRESSABLE.where(messages.c.seq.in_(_SEQS))

_UNSEEN = messages.c.state.in_((State.ACCEPTED.value, State.DELIVERED.value))
_KEEPS_WAITING = (
    select(messages.c.seq)
    .outerjoin(a2a_tasks, a2a_tasks.c.requested_seq == messages.c.seq)
    .where(_OPEN, _UNSEEN, messages.c.recipient == bindparam("to"), a2a_tasks.c.id.is_(None))
    .limit(1)
)

_replies = messages.alias("replies")
_ANSWERED = (
    select(*COLUMNS)
    .join(
        _replies,
        and_(
            _replies.c.reply_to == messages.c.id,
            _replies.c.reply_to != "",
            _replies.c.sender == messages.c.recipient,
            _replies.c.recipient == messages.c.sender,
        ),
    )
    .where(_OPEN, _PAST)
    .distinct()
    .order_by(messages.c.seq)
)
# Two queries, since SQLite uses no index for an OR over two tables.
_ANSWERED_AMONG = tuple(_ANSWERED.where(side.c.seq.in_(_SEQS)) for side in (messages, _replies))
_ANSWERED_ALL = _ANSWERED.limit(BATCH)


def unaddressable(
    connection: Connection, seqs: Iterable[int] | None = None, *, after: int = 0
) -> list[tuple[MessageRow, bool]]:
    """Open messages whose recipient is unknown or retired, each with whether the directory knows it (then it is
    retired).

    The request of a taken task does not count: it ends with its task.

    Args:
        seqs: only these messages; None for all.
        after: only messages past this sequence.
    """
    found = (
        connection.execute(_UNADDRESSABLE, {"after": after})
        if seqs is None
        else connection.execute(_UNADDRESSABLE_AMONG, {"after": after, "seqs": list(seqs)})
    )
    return [
        (MessageRow(**{name: row[name] for name in row if name != "known"}), bool(row["known"]))
        for row in found.mappings()
    ]


def answered(
    connection: Connection, seqs: Iterable[int] | None = None, *, after: int = 0
) -> list[MessageRow]:
    """Open messages to which the log holds a reply of their recipient.

    Args:
        seqs: only these messages and those that they answer; None for all.
        after: only messages past this sequence.
    """
    if seqs is None:
        return rows(connection, _ANSWERED_ALL, after=after)
    wanted = list(seqs)
    return [
        row for side in _ANSWERED_AMONG for row in rows(connection, side, after=after, seqs=wanted)
    ]


def keeps_waiting(connection: Connection, recipient: str) -> bool:
    """Whether `recipient` has an unconfirmed message that requests no task: later messages may wait for it."""
    return connection.execute(_KEEPS_WAITING, {"to": recipient}).first() is not None


def expired(connection: Connection, now: float) -> list[MessageRow]:
    """Open messages past their expiry, the earliest first."""
    due = and_(_OPEN, messages.c.expires_at > 0, messages.c.expires_at <= now)
    return rows(
        connection, select(*COLUMNS).where(due).order_by(messages.c.expires_at).limit(BATCH)
    )


def next_expiry(connection: Connection, now: float) -> float | None:
    """The instant at which the next open message expires."""
    later = select(func.min(messages.c.expires_at)).where(
        _OPEN, messages.c.expires_at > 0, messages.c.expires_at > now
    )
    return connection.execute(later).scalar()


_STALE = and_(
    alerts.c.kind == STALE,
    alerts.c.sender == CONTROL_PLANE,
    alerts.c.who == messages.c.recipient,
)
_others = messages.alias("others")
_STILL = exists().where(
    _others.c.final == false(),
    _others.c.state == State.ACCEPTED.value,
    _others.c.recipient == alerts.c.who,
    _others.c.stored_at <= alerts.c.at,
)
_ALERTED = (
    exists()
    .where(
        _STALE,
        or_(
            messages.c.stored_at <= func.coalesce(alerts.c.ended_at, alerts.c.at),
            and_(alerts.c.ended_at.is_(None), _STILL.correlate(alerts)),
        ),
    )
    .correlate(messages)
)
_PERSON = (
    exists()
    .where(agents.c.uid == messages.c.recipient, agents.c.kind == "human")
    .correlate(messages)
)
_UNTAKEN = select(*COLUMNS).where(
    _OPEN, messages.c.state == State.ACCEPTED.value, ~_PERSON, ~_ALERTED
)


def untaken(connection: Connection, before: float) -> list[MessageRow]:
    """Messages to agents, stored before `before`, that nobody took and that have no alert yet."""
    found = _UNTAKEN.where(messages.c.stored_at <= before)
    return rows(connection, found.order_by(messages.c.stored_at).limit(BATCH))


def next_untaken(connection: Connection, after: float) -> float | None:
    """The instant at which the earliest such message past `after` was stored."""
    found = _UNTAKEN.where(messages.c.stored_at > after)
    first = rows(connection, found.order_by(messages.c.stored_at).limit(1))
    return first[0].stored_at if first else None


def count_untaken(connection: Connection, recipient: str) -> int:
    """The number of messages to that agent that nobody took."""
    found = select(func.count()).where(
        _OPEN, messages.c.state == State.ACCEPTED.value, messages.c.recipient == recipient
    )
    return connection.execute(found).scalar_one()


def recipients_waited_for(connection: Connection, before: float, limit: int) -> list[str]:
    """Uids of workers and external agents with an unseen message from before `before`."""
    found = (
        select(messages.c.recipient)
        .join(agents, agents.c.uid == messages.c.recipient)
        .where(_OPEN, _UNSEEN, messages.c.stored_at < before)
        .where(agents.c.kind.in_(("worker", "external")))
        .group_by(messages.c.recipient)
        .order_by(func.random())  # more than `limit` of them take turns
        .limit(limit)
    )
    return list(connection.execute(found).scalars())
