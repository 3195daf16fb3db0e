"""Posts, dead letters, early receipts and cursors, as rows of the projection."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields
from itertools import islice

from sqlalchemy import ColumnElement, and_, bindparam, delete, func, select, update

from postroom.store import search
from postroom.store.messages import page
from postroom.store.schema import cursors, deadletters, early_receipts, memberships, posts
from postroom.store.session import (
    Session,
    among,
    insert_new,
    prepared,
    upsert,
    values_of,
)
from postroom.store.words import Wanted, mark


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

_NEW_POST = insert_new(posts)
_NEW_LETTER = insert_new(deadletters)
_NEW_EARLY = insert_new(early_receipts)
_POST_OF = prepared(
    select(*_POST).where(posts.c.sender == bindparam("sender"), posts.c.id == bindparam("post"))
)
_FOUND_POSTS = search.POSTS.finds(_POST)
_first = select(func.min(posts.c.project).label("name")).cte("first", recursive=True)
_next = select(func.min(posts.c.project)).where(posts.c.project > _first.c.name).scalar_subquery()
# From one name to the next by the index, past however many posts of each.
_POSTED_TO = prepared(
    select(_first.union_all(select(_next).where(_first.c.name.is_not(None))).c.name)
)
_JOINED = prepared(select(memberships.c.project).distinct())
_HAS_POST = prepared(select(posts.c.seq).where(posts.c.seq == bindparam("at")))
_POSTS_OF = select(*_POST).where(posts.c.project == bindparam("of")).limit(bindparam("most"))
_POSTS_BEFORE = prepared(
    _POSTS_OF.where(posts.c.seq < bindparam("past")).order_by(posts.c.seq.desc())
)
_POSTS_AFTER = prepared(_POSTS_OF.where(posts.c.seq > bindparam("past")).order_by(posts.c.seq))
_POSTS_PAST = prepared(
    select(*_POST)
    .where(posts.c.seq > bindparam("past"))
    .order_by(posts.c.seq)
    .limit(bindparam("most"))
)
_OF = and_(
    early_receipts.c.sender == bindparam("sender"),
    early_receipts.c.message_id == bindparam("message_id"),
)
_EARLY_OF = prepared(select(*_EARLY).where(_OF).order_by(early_receipts.c.seq))
_FORGET_EARLY_OF = prepared(delete(early_receipts).where(_OF))
_ATTEMPTS = prepared(
    select(deadletters.c.sender, deadletters.c.message_id, deadletters.c.attempts).where(
        among(deadletters.c.message_id, "ids"), deadletters.c.message_id != ""
    )
)
_CURSOR = prepared(
    select(cursors.c.seq).where(
        cursors.c.projection == bindparam("projection"), cursors.c.stream == bindparam("stream")
    )
)
_SET_CURSOR = upsert(cursors, ["projection", "stream"], ["seq"])

PASSED_OVER = "passed-over/"
"""Begins the name of the cursor that stands at one record which no rule could fold."""

_PASSED_OVER = prepared(
    select(cursors.c.seq)
    .where(cursors.c.projection.startswith(PASSED_OVER), cursors.c.stream == bindparam("named"))
    .order_by(cursors.c.seq)
)


class Cursors:
    """How far a projection has folded each stream: the sequence of the last record, 0 before the first."""

    def __init__(self, session: Session, projection: str) -> None:
        self._session = session
        self._projection = projection

    def get(self, stream: str) -> int:
        """Sequence of the last folded record of `stream`."""
        found = self._session.scalar(_CURSOR, projection=self._projection, stream=stream)
        return found or 0

    def set(self, stream: str, seq: int) -> None:
        """Store the sequence up to which `stream` is folded."""
        values = {"projection": self._projection, "stream": stream, "seq": seq}
        self._session.run(_SET_CURSOR, values)


class RecordStore:
    """Posts, dead letters and early receipts."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.cursors = Cursors(session, "mail")

    def pass_over(self, stream: str, seq: int) -> None:
        """Keep the sequence of a record that no rule could fold, for a rebuild by rules that can."""
        Cursors(self._session, f"{PASSED_OVER}{seq}").set(stream, seq)

    def passed_over(self, stream: str) -> list[int]:
        """The sequences of such records, in their order."""
        return self._session.column(_PASSED_OVER, named=stream)

    def was_folded(self, stream: str, seq: int) -> None:
        """Such a record is folded now, or gone from the log."""
        projection = f"{PASSED_OVER}{seq}"
        self._session.run(
            delete(cursors).where(cursors.c.projection == projection, cursors.c.stream == stream)
        )

    def insert_post(self, row: PostRow) -> bool:
        """Store a post; False without effect if its sender has used that id before."""
        values = values_of(row)
        if self._session.run(_NEW_POST, values) != 1:
            return False
        search.POSTS.add(self._session, values)
        return True

    def post_of(self, sender: str, post_id: str) -> PostRow | None:
        """The post of `sender` with that id."""
        return self._session.first(PostRow, _POST_OF, sender=sender, post=post_id)

    def has_post(self, seq: int) -> bool:
        """Whether that record of FEED is a post that is kept."""
        return self._session.scalar(_HAS_POST, at=seq) is not None

    def search_posts(
        self, project: str, words: Collection[str], *, limit: int, before: int = 0
    ) -> list[PostRow]:
        """The newest posts of a project with each of `words`, oldest first; words match as those of messages do."""
        wanted, most = Wanted(words, [mark(search.PROJECT, project)]), page(limit)
        rows = search.POSTS.find(self._session, _FOUND_POSTS, wanted, before, most)
        found = (PostRow(*row) for row in rows)
        having = (row for row in found if row.project == project and wanted.is_in(row.text))
        return list(islice(having, most))[::-1]

    def project_posts(
        self, project: str, *, limit: int, before: int = 0, after: int = 0
    ) -> list[PostRow]:
        """Posts of a project, oldest first: the newest `limit`, or the first `limit` past `after`."""
        values = {"of": project, "most": page(limit), "past": after or before or 2**62}
        if after:
            return self._session.all(PostRow, _POSTS_AFTER, **values)
        return self._session.all(PostRow, _POSTS_BEFORE, **values)[::-1]

    def posts_past(self, after: int, limit: int) -> list[PostRow]:
        """The first posts of all projects past sequence `after`, oldest first."""
        return self._session.all(PostRow, _POSTS_PAST, past=after, most=page(limit))

    def projects(self, *more: str) -> list[str]:
        """The projects that an agent is or was in, those with a post, and `more`; sorted."""
        found = [each for each in self._session.column(_POSTED_TO) if each is not None]
        return sorted({*self._session.column(_JOINED), *found, *more})

    def insert_dead_letter(self, row: DeadLetterRow) -> bool:
        """Store a dead letter; False without effect if that delivery has one."""
        return self._session.run(_NEW_LETTER, values_of(row)) == 1

    def dead_letter(self, letter: int) -> DeadLetterRow | None:
        """The dead letter with that id, dropped or not."""
        return self._session.first(DeadLetterRow, select(*_DEAD).where(deadletters.c.id == letter))

    def dead_letters_of(self, prefix: str, limit: int, party: str = "") -> list[DeadLetterRow]:
        """The first dead letters whose message id has that hexadecimal prefix; dropped ones do not count. With `party`
        those from or to that uid.
        """
        found = select(*_DEAD).where(deadletters.c.dropped_at.is_(None))
        found = found.where(
            deadletters.c.message_id >= prefix, deadletters.c.message_id < prefix + "g"
        )
        if party:
            found = found.where(_of_party(party))
        return self._session.all(DeadLetterRow, found.order_by(deadletters.c.id).limit(page(limit)))

    def dead_letter_of(self, origin: str) -> DeadLetterRow | None:
        """The dead letter of that delivery."""
        return self._session.first(
            DeadLetterRow, select(*_DEAD).where(deadletters.c.origin == origin)
        )

    def dead_letters(self, limit: int, before: int = 0, party: str = "") -> list[DeadLetterRow]:
        """The newest dead letters that were not dropped, newest first.

        Args:
            before: only those with a lower number; 0 for all.
            party: only those from or to that uid; "" for everybody's.
        """
        found = (
            select(*_DEAD)
            .where(deadletters.c.dropped_at.is_(None))
            .order_by(deadletters.c.id.desc())
        )
        if before:
            found = found.where(deadletters.c.id < before)
        if party:
            found = found.where(_of_party(party))
        return self._session.all(DeadLetterRow, found.limit(page(limit)))

    def count_dead_letters(self, party: str = "") -> int:
        """The number of dead letters that were not dropped; with `party` of those from or to that uid."""
        found = (
            select(func.count()).select_from(deadletters).where(deadletters.c.dropped_at.is_(None))
        )
        if party:
            found = found.where(_of_party(party))
        return self._session.scalar(found)

    def mark_dropped(self, letter: int, at: float) -> bool:
        """Mark a dead letter as dropped; False if it was already, or does not exist."""
        dropped = (
            update(deadletters)
            .where(deadletters.c.id == letter, deadletters.c.dropped_at.is_(None))
            .values(dropped_at=at)
        )
        return self._session.run(dropped) == 1

    def attempts_of(self, ids: Iterable[str]) -> dict[tuple[str, str], int]:
        """(sender, message id) to the attempts before a message was given up, for those `ids`."""
        found = sorted(self._session.rows(_ATTEMPTS, ids=set(ids)))
        return {(sender, message): count for sender, message, count in found}

    def keep_early_receipt(self, row: EarlyReceipt) -> None:
        """Keep a receipt until its message is folded."""
        self._session.run(_NEW_EARLY, values_of(row))

    def take_early_receipts(self, sender: str, message_id: str) -> list[EarlyReceipt]:
        """Take out the receipts that were kept for that message, in the log's order."""
        mine = {"sender": sender, "message_id": message_id}
        taken = self._session.all(EarlyReceipt, _EARLY_OF, **mine)
        if taken:
            self._session.run(_FORGET_EARLY_OF, mine)
        return taken

    def forget_early_receipts(self, before: float) -> int:
        """Drop receipts stored before `before` whose message never came; returns how many."""
        return self._session.run(delete(early_receipts).where(early_receipts.c.at < before))


def _of_party(uid: str) -> ColumnElement[bool]:
    return (deadletters.c.sender == uid) | (deadletters.c.recipient == uid)
