"""The threads of an agent: of the messages that it has sent or received, folded from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import Select, bindparam, delete, or_, select, update

from postroom.store.schema import messages, threads
from postroom.store.session import Session, among, insert_new, prepared, values_of

MOST_PARTIES = 50
"""Others of one thread that are named; those who came later are in its messages."""


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """A thread as one of its parties has it; `others` are uids, in the order in which they came.

    Attributes:
        first, last: sequences of INBOX.
        count: messages that the party has sent or received in it, and that are kept.
    """

    uid: str
    thread: str
    first: int
    last: int
    count: int
    others: str

    @property
    def parties(self) -> list[str]:
        """The uids of the others."""
        return self.others.split()


CHUNK = 500
"""Messages that are counted at once."""

Gone = dict[tuple[str, str], list[int]]
"""Sequences of messages, by party and thread."""

_ROW = [threads.c[field.name] for field in fields(ThreadRow)]
_MINE = (threads.c.uid == bindparam("of"), threads.c.thread == bindparam("named"))
_OF = prepared(select(*_ROW).where(*_MINE))
_NEW = insert_new(threads)
_SET = prepared(update(threads).where(*_MINE))
_FORGET = prepared(delete(threads).where(*_MINE))
_PAGE = prepared(
    select(*_ROW)
    .where(threads.c.uid == bindparam("of"), threads.c.last < bindparam("past"))
    .order_by(threads.c.last.desc())
    .limit(bindparam("most"))
)
_PARTIES = prepared(
    select(messages.c.seq, messages.c.context_id, messages.c.sender, messages.c.recipient).where(
        among(messages.c.seq, "keys"), messages.c.context_id != ""
    )
)

_SOME = prepared(
    select(messages.c.seq, messages.c.context_id, messages.c.sender, messages.c.recipient)
    .where(messages.c.seq > bindparam("after"), messages.c.context_id != "")
    .order_by(messages.c.seq)
    .limit(CHUNK)
)


def _left(order: Any) -> Select:
    """The sequence of the first message of a thread and a party, in that order."""
    return (
        select(messages.c.seq)
        # The index is partial.
        .where(messages.c.context_id == bindparam("named"), messages.c.context_id != "")
        .where(or_(messages.c.sender == bindparam("of"), messages.c.recipient == bindparam("of")))
        .order_by(order)
        .limit(1)
    )


_FIRST = prepared(_left(messages.c.seq))
_LAST = prepared(_left(messages.c.seq.desc()))


class ThreadStore:
    """The threads of all parties."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def note(self, seq: int, thread: str, sender: str, recipient: str) -> None:
        """Count a new message."""
        for uid, other in {(sender, recipient), (recipient, sender)}:
            known = self.of(uid, thread)
            if known is None:
                row = ThreadRow(uid, thread, seq, seq, 1, other)
                self._session.run(_NEW, values_of(row))
                continue
            changes: dict[str, object] = {"last": max(seq, known.last), "count": known.count + 1}
            parties = known.parties
            if other not in parties and len(parties) < MOST_PARTIES:
                changes["others"] = f"{known.others} {other}"
            self._session.run(_SET, {"of": uid, "named": thread, **changes})

    def note_all(self) -> None:
        """Count all messages, of which none is counted yet."""
        after, some = 0, [()]
        while some:
            some = self._session.rows(_SOME, after=after)
            for seq, thread, sender, recipient in some:
                self.note(seq, thread, sender, recipient)
                after = seq

    def of(self, uid: str, thread: str) -> ThreadRow | None:
        """That thread as `uid` has it."""
        return self._session.first(ThreadRow, _OF, of=uid, named=thread)

    def page(self, uid: str, before: int, limit: int) -> list[ThreadRow]:
        """The threads of `uid`, the one with the newest message first; those whose last one is below `before`."""
        return self._session.all(ThreadRow, _PAGE, of=uid, past=before or 2**62, most=limit)

    def going(self, seqs: Collection[int]) -> Gone:
        """What `forget` needs to know of messages that are about to be deleted."""
        found: Gone = defaultdict(list)
        for seq, thread, *parties in self._session.rows(_PARTIES, keys=seqs):
            for uid in set(parties):
                found[uid, thread].append(seq)
        return found

    def forget(self, gone: Gone) -> None:
        """Take messages out that were deleted."""
        for (uid, thread), seqs in gone.items():
            mine = {"of": uid, "named": thread}
            known = self.of(uid, thread)
            first = self._session.scalar(_FIRST, **mine)
            if known is None or first is None:
                self._session.run(_FORGET, mine)
                continue
            last = self._session.scalar(_LAST, **mine) if known.last in seqs else known.last
            changes = {"first": first, "last": last, "count": known.count - len(seqs)}
            self._session.run(_SET, {**mine, **changes})
