"""Messages of INBOX, and announcements of agents, as rows of the projection."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields, replace
from itertools import islice
from operator import attrgetter
from typing import Any

from sqlalchemy import and_, bindparam, false, func, literal_column, or_, select, true, update

from postroom.errors import Conflict
from postroom.protocol.limits import MAX_PAGE
from postroom.protocol.receipts import State
from postroom.store import search
from postroom.store.schema import announcements, archived, given_up, messages
from postroom.store.session import Session, among, insert_new, prepared, values_of
from postroom.store.signing import ALTERED, Signer
from postroom.store.threads import ThreadStore
from postroom.store.words import Wanted, mark
from postroom_a2a.times import format_time


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message and its state.

    Attributes:
        message: A2A Message, as JSON text.
        stored_at: instant of the record in the log; `sent_at` and `expires_at` come from the sender.
        updated_at: instant of the record that set the present state.
        final: no further state follows.
        requests: it requests a task.
        task: id of the task that its sender was at, as the sender says; "" for none.
        signature: proves the rest (`store.signing`); "" for one that nobody has signed.
        receipt: sequence in RECEIPTS of the record that set the present state, 0 for none.
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
    requests: bool = False
    subject: str = ""
    task: str = ""
    signature: str = ""
    receipt: int = 0

    @property
    def altered(self) -> bool:
        """Whether somebody has changed it in the database; then nothing is shown of what it says."""
        return self.signature == ALTERED


COLUMNS = [messages.c[field.name] for field in fields(MessageRow)]
_FOUND = search.MESSAGES.finds(COLUMNS)
_NEWEST = prepared(
    select(*COLUMNS)
    .where(messages.c.seq < bindparam("past"))
    .order_by(messages.c.seq.desc())
    .limit(bindparam("most"))
)

_INSERT = insert_new(messages)
_OF = prepared(
    select(*COLUMNS).where(
        messages.c.sender == bindparam("sender"), messages.c.id == bindparam("message_id")
    )
)
_BY_ID = prepared(
    select(*COLUMNS)
    .where(messages.c.id == bindparam("message_id"))
    .order_by(messages.c.seq)
    .limit(1)
)
_IDS = prepared(
    select(messages.c.id)
    .where(messages.c.id >= bindparam("least"), messages.c.id < bindparam("past"))
    .distinct()
    .order_by(messages.c.id)
    .limit(bindparam("most"))
)
_IDS_BETWEEN = prepared(
    select(messages.c.id)
    .where(
        messages.c.id >= bindparam("least"),
        messages.c.id < bindparam("past"),
        or_(messages.c.sender == bindparam("party"), messages.c.recipient == bindparam("party")),
    )
    .distinct()
    .order_by(messages.c.id)
    .limit(bindparam("most"))
)
_AT = prepared(select(*COLUMNS).where(messages.c.seq == bindparam("at")))
_AMONG = prepared(select(*COLUMNS).where(among(messages.c.seq, "seqs")))
_SET_STATE = prepared(update(messages).where(messages.c.seq == bindparam("at")))
_ANY_PAST = prepared(
    select(*COLUMNS)
    .where(messages.c.seq > bindparam("after"))
    .order_by(messages.c.seq)
    .limit(bindparam("most"))
)
_GIVEN_UP = prepared(
    select(given_up.c.stored_at).where(
        given_up.c.sender == bindparam("sender"), given_up.c.id == bindparam("message_id")
    )
)
_STATE = ("state", "reason", "final", "updated_at", "receipt")
"""Columns that change; no signature covers them."""
_SAYS = ("subject", "context_id", "reply_to", "requeue_of", "task")
"""Further columns in which a message says something."""
NOT_SHOWN = "[this message is not as it was stored, so it is not shown]"
"""The text of an altered message, wherever it is read."""
_NOTHING = json.dumps({"parts": [{"text": NOT_SHOWN}]})
_ANSWERS = prepared(
    # The index is partial.
    select(*COLUMNS).where(among(messages.c.reply_to, "ids"), messages.c.reply_to != "")
)
UNREAD = and_(
    messages.c.final == false(),
    messages.c.state.in_((State.ACCEPTED.value, State.DELIVERED.value)),
)
_TO = select(*COLUMNS).where(messages.c.recipient == bindparam("to"))
_HERE, _AWAY = messages.c.archived == false(), messages.c.archived == true()
_SHOWN = messages.c.archived.is_(False)  # said so, SQLite stays at the index of open messages
_NEWEST_TO = _TO.order_by(messages.c.seq.desc()).limit(bindparam("most"))
_INBOX = prepared(_NEWEST_TO.where(_HERE))
_INBOX_ARCHIVED = prepared(_NEWEST_TO.where(_AWAY))
_IS_ARCHIVED = prepared(select(archived.c.seq).where(archived.c.seq == bindparam("at")))
_UNREAD_IN = prepared(
    # The index is partial: a thread may be long, what is open in it is little.
    select(messages.c.context_id, func.count())
    .where(messages.c.recipient == bindparam("to"), UNREAD, messages.c.context_id != "")
    .where(among(messages.c.context_id, "named"))
    .group_by(messages.c.context_id)
)
_INBOX_UNREAD = prepared(
    _TO.where(UNREAD, _SHOWN).order_by(messages.c.seq.desc()).limit(bindparam("most"))
)
_DELIVERED = prepared(
    select(messages.c.id)
    .where(
        messages.c.recipient == bindparam("to"),
        messages.c.final.is_(False),
        messages.c.state == State.DELIVERED.value,
        messages.c.reason == bindparam("reason"),
    )
    .order_by(messages.c.seq)
    .limit(bindparam("most"))
)
_PAIR = (
    select(*COLUMNS)
    .where(messages.c.sender == bindparam("sender"), messages.c.recipient == bindparam("recipient"))
    .limit(bindparam("most"))
)
_PAIR_BEFORE = prepared(
    _PAIR.where(messages.c.seq < bindparam("past")).order_by(messages.c.seq.desc())
)
_PAIR_AFTER = prepared(_PAIR.where(messages.c.seq > bindparam("past")).order_by(messages.c.seq))
_LAST = 2**62
"""Past every sequence."""
_UNREAD_COUNTS = prepared(
    select(messages.c.recipient, func.count())
    .where(among(messages.c.recipient, "uids"), UNREAD, _SHOWN)
    .group_by(messages.c.recipient)
)
_REQUEUES = prepared(
    select(messages.c.seq, messages.c.sender, messages.c.requeue_of, messages.c.id).where(
        among(messages.c.requeue_of, "ids"), messages.c.requeue_of != ""
    )
)
_TO_PAST = prepared(
    _TO.where(messages.c.seq > bindparam("after")).order_by(messages.c.seq).limit(bindparam("most"))
)
_UNREAD_PAST = prepared(
    _TO.where(
        messages.c.seq > bindparam("after"),
        UNREAD,
        or_(messages.c.expires_at == 0, messages.c.expires_at > bindparam("now")),
    )
    .order_by(messages.c.seq)
    .limit(bindparam("most"))
)
_UNREAD_PAST_OF = prepared(
    select(*COLUMNS)
    .where(
        among(messages.c.recipient, "uids"),
        messages.c.seq > bindparam("after"),
        UNREAD,
        or_(messages.c.expires_at == 0, messages.c.expires_at > bindparam("now")),
    )
    .order_by(messages.c.seq)
    .limit(bindparam("most"))
)
_NAMED = prepared(select(*COLUMNS).where(among(messages.c.id, "ids")))
_RECEIPTS_PAST = prepared(
    # The index is partial.
    select(*COLUMNS)
    .where(messages.c.receipt > bindparam("after"), messages.c.receipt > literal_column("0"))
    .order_by(messages.c.receipt)
    .limit(bindparam("most"))
)


_OF_TASK = prepared(
    # The index is partial.
    select(*COLUMNS)
    .where(messages.c.task == bindparam("of"), messages.c.task != "")
    .where(messages.c.sender == bindparam("sender"), messages.c.seq > bindparam("past"))
    .order_by(messages.c.seq)
    .limit(bindparam("most"))
)


_SEQ = attrgetter("seq")


def page(limit: int) -> int:
    """`limit`, cut to the bounds of one query."""
    return max(1, min(limit, MAX_PAGE))


class MessageStore:
    """Messages and their states.

    Args:
        signer: signs what is stored, and checks what is read; None where nobody reads what they say.
    """

    def __init__(self, session: Session, signer: Signer | None = None) -> None:
        self._session = session
        self._signer = signer

    def insert_message(self, row: MessageRow) -> bool:
        """Store a message; False without effect if its sender has used that id before, also of one that is kept no
        more.
        """
        if self.given_up(row.sender, row.id) is not None:
            return False
        values = values_of(row)
        if self._signer is not None:
            values["signature"] = self._signer.sign(row)
        # A rebuild folds what its recipient has put away before.
        values["archived"] = self._session.scalar(_IS_ARCHIVED, at=row.seq) is not None
        if self._session.run(_INSERT, values) != 1:
            return False
        search.MESSAGES.add(self._session, values)
        if row.context_id:
            ThreadStore(self._session).note(row.seq, row.context_id, row.sender, row.recipient)
        return True

    def row(self, *values: Any) -> MessageRow:
        """A message of a row with `COLUMNS`; without its words if it is not as it was stored."""
        row = MessageRow(*values)
        if self._signer is None or self._signer.genuine(row):
            return row
        nothing = dict.fromkeys(_SAYS, "")
        return replace(row, text=NOT_SHOWN, message=_NOTHING, signature=ALTERED, **nothing)

    def unchecked(self, after: int, limit: int) -> list[MessageRow]:
        """The first messages past sequence `after`, as the database has them."""
        return self._session.all(MessageRow, _ANY_PAST, after=after, most=page(limit))

    def sign(self, seq: int, signature: str) -> None:
        """Give a message another signature."""
        self._session.run(_SET_STATE, {"at": seq, "signature": signature})

    def put_back(self, row: MessageRow) -> None:
        """Let a message say again what `row` says, with a signature; its state stays."""
        values = values_of(row)
        for name in _STATE:
            del values[name]
        del values["seq"]
        values["signature"] = "" if self._signer is None else self._signer.sign(row)
        self._session.run(_SET_STATE, {"at": row.seq, **values})

    def given_up(self, sender: str, message_id: str) -> float | None:
        """When the message that `sender` sent under that id was stored, if it is kept no more."""
        return self._session.scalar(_GIVEN_UP, sender=sender, message_id=message_id)

    def message_of(self, sender: str, message_id: str) -> MessageRow | None:
        """The message that `sender` sent under that id."""
        return self._session.first(self.row, _OF, sender=sender, message_id=message_id)

    def earlier(self, sender: str, message_id: str) -> MessageRow | None:
        """As `message_of`, for who sends again under a key.

        Raises:
            Conflict: the message is kept no more.
        """
        row = self.message_of(sender, message_id)
        at = self.given_up(sender, message_id) if row is None else None
        if at is not None:
            day = format_time(at).partition("T")[0]
            raise Conflict(
                f"this was sent under the same key on {day}, and is kept no more; it is not sent again",
                remedy="give another key if you mean a new message",
            )
        return row

    def message_by_id(self, message_id: str) -> MessageRow | None:
        """The message with that id; the first in the log, if a second sender has copied the id."""
        return self._session.first(self.row, _BY_ID, message_id=message_id)

    def ids_by_prefix(self, prefix: str, limit: int, party: str = "") -> list[str]:
        """The first message ids with that hexadecimal prefix; with `party` of messages from or to that uid."""
        named = {"least": prefix, "past": prefix + "g", "most": page(limit)}
        if party:
            return self._session.column(_IDS_BETWEEN, party=party, **named)
        return self._session.column(_IDS, **named)

    def message_at(self, seq: int) -> MessageRow | None:
        """The message folded from that record of INBOX."""
        return self._session.first(self.row, _AT, at=seq)

    def messages_at(self, seqs: Iterable[int]) -> list[MessageRow]:
        """The messages folded from those records of INBOX, in their order."""
        return sorted(self._session.all(self.row, _AMONG, seqs=seqs), key=_SEQ)

    def set_state(
        self, seq: int, state: State, *, final: bool, reason: str, at: float, receipt: int
    ) -> None:
        """Store the new state of a message, by the record of RECEIPTS at `receipt`."""
        changes = {"state": state.value, "final": final, "reason": reason, "updated_at": at}
        self._session.run(_SET_STATE, {"at": seq, "receipt": receipt, **changes})

    def past(self, after: int, limit: int) -> list[MessageRow]:
        """The first messages to anyone past sequence `after`, oldest first."""
        return self._session.all(self.row, _ANY_PAST, after=after, most=page(limit))

    def receipts_past(self, after: int, limit: int) -> list[MessageRow]:
        """The messages whose state a record of RECEIPTS past `after` has set, in the order of these records."""
        return self._session.all(self.row, _RECEIPTS_PAST, after=after, most=page(limit))

    def first_answers(self, questions: Iterable[MessageRow]) -> dict[int, MessageRow]:
        """The first reply of its recipient to each of `questions`, by the question's sequence."""
        by_id = {(row.id, row.recipient, row.sender): row.seq for row in questions}
        if not by_id:
            return {}
        ids = {message_id for message_id, _, _ in by_id}
        # The latest comes first, so the first reply stays in the dictionary.
        replies = (
            (by_id.get((row.reply_to, row.sender, row.recipient)), row)
            for row in sorted(
                self._session.all(self.row, _ANSWERS, ids=ids), key=_SEQ, reverse=True
            )
        )
        return {seq: row for seq, row in replies if seq is not None}

    def inbox(
        self, recipient: str, *, unread: bool, limit: int, archived: bool = False
    ) -> list[MessageRow]:
        """The newest messages to `recipient` that it has not put away, oldest first; with `unread` only those that it
        has not seen and still could, with `archived` only those that it has put away.
        """
        statement = _INBOX_ARCHIVED if archived else _INBOX_UNREAD if unread else _INBOX
        return self._session.all(self.row, statement, to=recipient, most=page(limit))[::-1]

    def delivered(self, recipient: str, reason: str, limit: int) -> list[str]:
        """Ids of the first messages that `recipient` has not seen, and whose receipt of `delivered` has that reason."""
        found = self._session.rows(_DELIVERED, to=recipient, reason=reason, most=page(limit))
        return [id_ for (id_,) in found]

    def unread_counts(self, recipients: Iterable[str]) -> dict[str, int]:
        """The number of messages that each of `recipients` has not seen and still could, without those put away."""
        wanted = set(recipients)
        return dict.fromkeys(wanted, 0) | dict(self._session.rows(_UNREAD_COUNTS, uids=wanted))

    def unread_in(self, recipient: str, threads: Iterable[str]) -> dict[str, int]:
        """The number of messages of each of `threads` that `recipient` has not seen and still could; none for none."""
        return dict(self._session.rows(_UNREAD_IN, to=recipient, named=set(threads)))

    def chat(
        self, one: str, other: str, *, limit: int, before: int = 0, after: int = 0
    ) -> list[MessageRow]:
        """Messages between two agents, oldest first: the newest `limit`, or the first `limit` past `after`."""
        # One query for each direction, since SQLite sorts all that an OR of both gives.
        statement = _PAIR_AFTER if after else _PAIR_BEFORE
        values = {"most": page(limit), "past": after or before or _LAST}
        found = [
            row
            for sender, recipient in {(one, other), (other, one)}
            for row in self._session.all(
                self.row, statement, sender=sender, recipient=recipient, **values
            )
        ]
        found.sort(key=_SEQ)
        return found[: values["most"]] if after else found[-values["most"] :]

    def to_past(self, recipient: str, after: int, limit: int) -> list[MessageRow]:
        """The first messages to `recipient` past sequence `after`, oldest first."""
        return self._session.all(self.row, _TO_PAST, to=recipient, after=after, most=page(limit))

    def search(
        self,
        *,
        words: Collection[str] = (),
        thread: str = "",
        parties: Collection[str] = (),
        limit: int,
        before: int = 0,
        requests: bool = False,
    ) -> list[MessageRow]:
        """The newest messages, newest first, of one thread, with each of `words` in their text or subject
        (`store.words`).

        Args:
            parties: uids that have each sent or received it.
            before: only messages below this sequence.
            requests: only requests of tasks.
        """
        marks = [mark(search.PARTY, uid) for uid in parties]
        marks += [mark(search.THREAD, thread)] if thread else []
        marks += [mark(search.REQUEST, "")] if requests else []
        wanted, most = Wanted(words, marks), page(limit)
        if not wanted.pieces:
            return self._session.all(self.row, _NEWEST, past=before or _LAST, most=most)
        rows = search.MESSAGES.find(self._session, _FOUND, wanted, before, most)
        found = (
            row
            for row in (self.row(*values) for values in rows)
            if wanted.is_in(row.text, row.subject)
            and thread in ("", row.context_id)
            and {row.sender, row.recipient}.issuperset(parties)
            and (row.requests or not requests)
        )
        return list(islice(found, most))

    def unread_past(self, recipient: str, after: int, now: float, limit: int) -> list[MessageRow]:
        """The first messages to `recipient` past sequence `after` that it has not seen and at `now` still can, oldest
        first.
        """
        return self._session.all(
            self.row, _UNREAD_PAST, to=recipient, after=after, now=now, most=page(limit)
        )

    def unread_past_of(
        self, recipients: Iterable[str], after: int, now: float, limit: int
    ) -> list[MessageRow]:
        """As `unread_past`, for several recipients together."""
        named = {"uids": set(recipients), "after": after, "now": now, "most": page(limit)}
        return self._session.all(self.row, _UNREAD_PAST_OF, **named)

    def named_to(self, recipient: str, ids: Iterable[str]) -> list[MessageRow]:
        """The messages to `recipient` with those ids, in their order; several senders may have used one id."""
        # By the ids alone, or SQLite would read all that the recipient has.
        found = self._session.all(self.row, _NAMED, ids=set(ids))
        return sorted((row for row in found if row.recipient == recipient), key=_SEQ)

    def sent_in(self, task: str, sender: str, after: int, limit: int) -> list[MessageRow]:
        """The first messages past sequence `after` that `sender` sent in the course of a task, oldest first."""
        named = {"of": task, "sender": sender, "past": after, "most": page(limit)}
        return self._session.all(self.row, _OF_TASK, **named)

    def requeues(self, ids: Iterable[str]) -> dict[tuple[str, str], str]:
        """(sender, id) of each dead message in `ids` to the message that repeats it."""
        found = sorted(self._session.rows(_REQUEUES, ids=set(ids)), reverse=True)
        return {(sender, dead): new for _, sender, dead, new in found}


@dataclass(frozen=True, slots=True)
class AnnouncementRow:
    """What an agent announced; `seq` is its sequence in OUTBOX, `at` when it was stored."""

    seq: int
    id: str
    sender: str
    text: str
    message: str
    at: float


_ROW = [announcements.c[field.name] for field in fields(AnnouncementRow)]

_NEW = insert_new(announcements)
_ANNOUNCED_BY = (
    select(*_ROW).where(announcements.c.sender == bindparam("of")).limit(bindparam("most"))
)
_BEFORE = prepared(
    _ANNOUNCED_BY.where(announcements.c.seq < bindparam("past")).order_by(
        announcements.c.seq.desc()
    )
)
_AFTER = prepared(
    _ANNOUNCED_BY.where(announcements.c.seq > bindparam("past")).order_by(announcements.c.seq)
)
_ANNOUNCEMENT = prepared(
    select(*_ROW).where(
        announcements.c.sender == bindparam("sender"), announcements.c.id == bindparam("made")
    )
)
_HAS = prepared(select(announcements.c.seq).where(announcements.c.seq == bindparam("at")))


class AnnouncementStore:
    """What agents have announced."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def insert(self, row: AnnouncementRow) -> bool:
        """Store an announcement; False without effect if its sender has used that id before."""
        return self._session.run(_NEW, values_of(row)) == 1

    def by_id(self, sender: str, announcement: str) -> AnnouncementRow | None:
        """The announcement of `sender` with that id."""
        return self._session.first(AnnouncementRow, _ANNOUNCEMENT, sender=sender, made=announcement)

    def has(self, seq: int) -> bool:
        """Whether that record of OUTBOX is an announcement that is kept."""
        return self._session.scalar(_HAS, at=seq) is not None

    def of(
        self, sender: str, *, limit: int, before: int = 0, after: int | None = None
    ) -> list[AnnouncementRow]:
        """Those of `sender`, oldest first: the newest `limit`, or the first `limit` past `after`."""
        values = {"of": sender, "most": page(limit)}
        if after is not None:
            return self._session.all(AnnouncementRow, _AFTER, past=after, **values)
        return self._session.all(AnnouncementRow, _BEFORE, past=before or 2**62, **values)[::-1]
