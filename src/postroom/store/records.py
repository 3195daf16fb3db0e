"""Posts, dead letters, early receipts and cursors, as rows of the projection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from sqlalchemy import Connection, bindparam, delete, func, select, union, update
from sqlalchemy.dialects.sqlite import insert

from postroom.store.messages import page
from postroom.store.rows import all_of, first_of
from postroom.store.schema import cursors, deadletters, early_receipts, memberships, posts


@dataclass(frozen=True, slots=True)
class PostRow:
    """A post of a project's feed; `seq` is its sequence in FEED, `at` when it was stored."""

    seq: int
    id: str
    project: str
    sender: str
    text: str
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """A message that could not be delivered.

    Attributes:
        origin: the failed delivery, `<stream>-<sequence>-<consumer>`.
        subject: the first subject of the message.
        message_id: "" where the payload is not an envelope.
    """

    id: int
    origin: str
    subject: str
    sender: str
    recipient: str
    message_id: str
    payload: bytes
    reason: str
    attempts: int
    at: float
    dropped_at: float | None = None


@dataclass(frozen=True, slots=True)
class EarlyReceipt:
    """A receipt whose message is not folded yet; `seq` is its sequence in RECEIPTS."""

    seq: int
    sender: str
    message_id: str
    recipient: str
    state: str
    reason: str
    at: float


_POST = [posts.c[field.name] for field in fields(PostRow)]
_DEAD = [deadletters.c[field.name] for field in fields(DeadLetterRow)]
_EARLY = [early_receipts.c[field.name] for field in fields(EarlyReceipt)]


_TAKE = (early_receipts.c.sender == bindparam("sender")) & (
    early_receipts.c.message_id == bindparam("message_id")
)
_EARLY_OF = select(*_EARLY).where(_TAKE).order_by(early_receipts.c.seq)
_CURSOR = select(cursors.c.seq).where(cursors.c.stream == bindparam("stream"))
_NEW_CURSOR = insert(cursors)
_SET_CURSOR = _NEW_CURSOR.on_conflict_do_update(
    index_elements=["stream"], set_={"seq": _NEW_CURSOR.excluded.seq}
)


def insert_post(connection: Connection, row: PostRow) -> bool:
    """Store a post; False without effect if its sender has used that id before."""
    return (
        connection.execute(insert(posts).values(**asdict(row)).on_conflict_do_nothing()).rowcount
        == 1
    )


def post_of(connection: Connection, sender: str, post_id: str) -> PostRow | None:
    """The post of `sender` with that id."""
    found = select(*_POST).where(posts.c.sender == sender, posts.c.id == post_id)
    return first_of(connection, PostRow, found)


def has_post(connection: Connection, seq: int) -> bool:
    """Whether that record of FEED is a post that is kept."""
    return connection.execute(select(posts.c.seq).where(posts.c.seq == seq)).first() is not None


def project_posts(
    connection: Connection, project: str, *, limit: int, before: int = 0, after: int = 0
) -> list[PostRow]:
    """Posts of a project, oldest first: the newest `limit`, or the first `limit` past `after`."""
    found = select(*_POST).where(posts.c.project == project)
    if after:
        found = found.where(posts.c.seq > after).order_by(posts.c.seq).limit(page(limit))
        return all_of(connection, PostRow, found)
    if before:
        found = found.where(posts.c.seq < before)
    newest = found.order_by(posts.c.seq.desc()).limit(page(limit))
    return all_of(connection, PostRow, newest)[::-1]


def posts_past(connection: Connection, after: int, limit: int) -> list[PostRow]:
    """The first posts of all projects past sequence `after`, oldest first."""
    found = select(*_POST).where(posts.c.seq > after).order_by(posts.c.seq)
    return all_of(connection, PostRow, found.limit(page(limit)))


def projects(connection: Connection, *more: str) -> list[str]:
    """The projects that an agent is or was in, those with a post, and `more`; sorted."""
    found = union(select(memberships.c.project), select(posts.c.project))
    return sorted({*connection.execute(found).scalars(), *more})


def insert_dead_letter(connection: Connection, row: DeadLetterRow) -> bool:
    """Store a dead letter; False without effect if that delivery has one."""
    done = connection.execute(insert(deadletters).values(**asdict(row)).on_conflict_do_nothing())
    return done.rowcount == 1


def dead_letter(connection: Connection, letter: int) -> DeadLetterRow | None:
    """The dead letter with that id, dropped or not."""
    return first_of(connection, DeadLetterRow, select(*_DEAD).where(deadletters.c.id == letter))


def dead_letters_of(connection: Connection, prefix: str, limit: int) -> list[DeadLetterRow]:
    """The first dead letters whose message id has that hexadecimal prefix; dropped ones do not count."""
    found = select(*_DEAD).where(deadletters.c.dropped_at.is_(None))
    found = found.where(deadletters.c.message_id >= prefix, deadletters.c.message_id < prefix + "g")
    return all_of(connection, DeadLetterRow, found.order_by(deadletters.c.id).limit(page(limit)))


def dead_letter_of(connection: Connection, origin: str) -> DeadLetterRow | None:
    """The dead letter of that delivery."""
    return first_of(connection, DeadLetterRow, select(*_DEAD).where(deadletters.c.origin == origin))


def dead_letters(connection: Connection, limit: int) -> list[DeadLetterRow]:
    """The newest dead letters that were not dropped, newest first."""
    found = (
        select(*_DEAD).where(deadletters.c.dropped_at.is_(None)).order_by(deadletters.c.id.desc())
    )
    return all_of(connection, DeadLetterRow, found.limit(page(limit)))


def count_dead_letters(connection: Connection) -> int:
    """The number of dead letters that were not dropped."""
    found = select(func.count()).select_from(deadletters).where(deadletters.c.dropped_at.is_(None))
    return connection.execute(found).scalar_one()


def mark_dropped(connection: Connection, letter: int, at: float) -> bool:
    """Mark a dead letter as dropped; False if it was already, or does not exist."""
    dropped = (
        update(deadletters)
        .where(deadletters.c.id == letter, deadletters.c.dropped_at.is_(None))
        .values(dropped_at=at)
    )
    return connection.execute(dropped).rowcount == 1


def attempts_of(connection: Connection, ids: Iterable[str]) -> dict[tuple[str, str], int]:
    """(sender, message id) to the attempts before a message was given up, for those `ids`."""
    found = (
        select(deadletters.c.sender, deadletters.c.message_id, func.max(deadletters.c.attempts))
        .where(deadletters.c.message_id.in_(set(ids)), deadletters.c.message_id != "")
        .group_by(deadletters.c.sender, deadletters.c.message_id)
    )
    return {(sender, message): count for sender, message, count in connection.execute(found)}


def keep_early_receipt(connection: Connection, row: EarlyReceipt) -> None:
    """Keep a receipt until its message is folded."""
    connection.execute(insert(early_receipts).values(**asdict(row)).on_conflict_do_nothing())


def take_early_receipts(connection: Connection, sender: str, message_id: str) -> list[EarlyReceipt]:
    """Take out the receipts that were kept for that message, in the log's order."""
    mine = {"sender": sender, "message_id": message_id}
    taken = all_of(connection, EarlyReceipt, _EARLY_OF, **mine)
    if taken:
        connection.execute(delete(early_receipts).where(_TAKE), mine)
    return taken


def forget_early_receipts(connection: Connection, before: float) -> int:
    """Drop receipts stored before `before` whose message never came; returns how many."""
    return connection.execute(delete(early_receipts).where(early_receipts.c.at < before)).rowcount


def cursor(connection: Connection, stream: str) -> int:
    """Sequence of the last folded record of `stream`, 0 before the first."""
    return connection.execute(_CURSOR, {"stream": stream}).scalar() or 0


def set_cursor(connection: Connection, stream: str, seq: int) -> None:
    """Store the sequence up to which `stream` is folded."""
    connection.execute(_SET_CURSOR, {"stream": stream, "seq": seq})
