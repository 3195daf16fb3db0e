"""Messages of INBOX, as rows of the projection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from sqlalchemy import Connection, Select, and_, bindparam, false, func, or_, select, update
from sqlalchemy.dialects.sqlite import insert

from postroom.protocol.limits import MAX_PAGE
from postroom.protocol.receipts import State
from postroom.store.rows import all_of, first_of
from postroom.store.schema import messages


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message and its state.

    Attributes:
        message: A2A Message, as JSON text.
        stored_at: instant of the record in the log; `sent_at` and `expires_at` come from the sender.
        updated_at: instant of the record that set the present state.
        final: no further state follows.
    """

    seq: int
    id: str
    sender: str
    recipient: str
    text: str
    message: str
    sent_at: float
    stored_at: float
    updated_at: float
    context_id: str = ""
    expects_reply: bool = False
    reply_to: str = ""
    requeue_of: str = ""
    expires_at: float = 0.0
    state: str = State.ACCEPTED.value
    reason: str = ""
    final: bool = False


COLUMNS = [messages.c[field.name] for field in fields(MessageRow)]


_INSERT = insert(messages).on_conflict_do_nothing()
_OF = select(*COLUMNS).where(
    messages.c.sender == bindparam("sender"), messages.c.id == bindparam("message_id")
)
_AT = select(*COLUMNS).where(messages.c.seq == bindparam("at"))
_SET_STATE = update(messages).where(messages.c.seq == bindparam("at"))


def rows(connection: Connection, found: Select, **values: object) -> list[MessageRow]:
    """The rows of a selection of `COLUMNS` with `values`."""
    return all_of(connection, MessageRow, found, **values)


def insert_message(connection: Connection, row: MessageRow) -> bool:
    """Store a message; False without effect if its sender has used that id before."""
    return connection.execute(_INSERT, asdict(row)).rowcount == 1


def message_of(connection: Connection, sender: str, message_id: str) -> MessageRow | None:
    """The message that `sender` sent under that id."""
    return first_of(connection, MessageRow, _OF, sender=sender, message_id=message_id)


def message_by_id(connection: Connection, message_id: str) -> MessageRow | None:
    """The message with that id; the first in the log, if a second sender has copied the id."""
    found = select(*COLUMNS).where(messages.c.id == message_id).order_by(messages.c.seq).limit(1)
    return first_of(connection, MessageRow, found)


def ids_by_prefix(connection: Connection, prefix: str, limit: int) -> list[str]:
    """The first message ids with that hexadecimal prefix."""
    found = select(messages.c.id).where(messages.c.id >= prefix, messages.c.id < prefix + "g")
    return list(connection.scalars(found.distinct().order_by(messages.c.id).limit(page(limit))))


def message_at(connection: Connection, seq: int) -> MessageRow | None:
    """The message folded from that record of INBOX."""
    return first_of(connection, MessageRow, _AT, at=seq)


def set_state(
    connection: Connection, seq: int, state: State, *, final: bool, reason: str, at: float
) -> None:
    """Store the new state of a message."""
    changes = {"state": state.value, "final": final, "reason": reason, "updated_at": at}
    connection.execute(_SET_STATE, {"at": seq, **changes})


def first_answers(connection: Connection, questions: Iterable[MessageRow]) -> dict[int, MessageRow]:
    """The first reply of its recipient to each of `questions`, by the question's sequence."""
    by_id = {(row.id, row.recipient, row.sender): row.seq for row in questions}
    if not by_id:
        return {}
    found = (
        select(*COLUMNS)
        .where(messages.c.reply_to.in_({message_id for message_id, _, _ in by_id}))
        .where(messages.c.reply_to != "")  # the index is partial
        .order_by(messages.c.seq.desc())
    )
    # The latest comes first, so the first reply stays in the dictionary.
    replies = (
        (by_id.get((row.reply_to, row.sender, row.recipient)), row)
        for row in rows(connection, found)
    )
    return {seq: row for seq, row in replies if seq is not None}


def inbox(connection: Connection, recipient: str, *, unread: bool, limit: int) -> list[MessageRow]:
    """The newest messages to `recipient`, oldest first; with `unread` only those that it has not seen and still
    could.
    """
    found = select(*COLUMNS).where(messages.c.recipient == recipient)
    if unread:
        found = found.where(_unread())
    return _newest(connection, found, limit)


def unread_counts(connection: Connection, recipients: Iterable[str]) -> dict[str, int]:
    """The number of messages that each of `recipients` has not seen and still could."""
    wanted = set(recipients)
    found = (
        select(messages.c.recipient, func.count())
        .where(messages.c.recipient.in_(wanted), _unread())
        .group_by(messages.c.recipient)
    )
    return dict.fromkeys(wanted, 0) | {row[0]: row[1] for row in connection.execute(found)}


def _unread():  # noqa: ANN202 (SQLAlchemy's expression type says nothing)
    states = (State.ACCEPTED.value, State.DELIVERED.value)
    return and_(messages.c.final == false(), messages.c.state.in_(states))


def chat(
    connection: Connection, one: str, other: str, *, limit: int, before: int = 0, after: int = 0
) -> list[MessageRow]:
    """Messages between two agents, oldest first: the newest `limit`, or the first `limit` past `after`."""
    found = select(*COLUMNS).where(
        or_(
            and_(messages.c.sender == one, messages.c.recipient == other),
            and_(messages.c.sender == other, messages.c.recipient == one),
        )
    )
    if before:
        found = found.where(messages.c.seq < before)
    if after:
        found = found.where(messages.c.seq > after).order_by(messages.c.seq)
        return rows(connection, found.limit(page(limit)))
    return _newest(connection, found, limit)


def to_past(connection: Connection, recipient: str, after: int, limit: int) -> list[MessageRow]:
    """The first messages to `recipient` past sequence `after`, oldest first."""
    found = select(*COLUMNS).where(messages.c.recipient == recipient, messages.c.seq > after)
    return rows(connection, found.order_by(messages.c.seq).limit(page(limit)))


def requeues(connection: Connection, ids: Iterable[str]) -> dict[tuple[str, str], str]:
    """(sender, id) of each dead message in `ids` to the message that repeats it."""
    found = (
        select(messages.c.sender, messages.c.requeue_of, messages.c.id)
        .where(messages.c.requeue_of.in_(set(ids)), messages.c.requeue_of != "")
        .order_by(messages.c.seq.desc())
    )
    return {(sender, dead): new for sender, dead, new in connection.execute(found)}


def _newest(connection: Connection, found: Select, limit: int) -> list[MessageRow]:
    return rows(connection, found.order_by(messages.c.seq.desc()).limit(page(limit)))[::-1]


def page(limit: int) -> int:
    """`limit`, cut to the bounds of one query."""
    return max(1, min(limit, MAX_PAGE))
