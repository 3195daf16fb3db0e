"""Queries over messages that are not final: due ones, and ones that can never be delivered."""

from __future__ import annotations

from collections.abc import Callable, Collection

from sqlalchemy import and_, bindparam, exists, false, func, literal_column, not_, or_, select

from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.receipts import State
from postroom.store.alerts import STALE
from postroom.store.messages import COLUMNS, MessageRow
from postroom.store.schema import EVERYWHERE, agents, alerts, messages
from postroom.store.session import Session, among, prepared

BATCH = 256
"""The most messages of one query (at least a batch of the fold); the next query finds the rest."""

# Rendered as `final = 0`, the exact words of the partial indexes; with `IS` SQLite would use none of them.
_OPEN = messages.c.final == false()


_IS_OURS = exists().where(agents.c.uid == messages.c.recipient).correlate(messages)
_KNOWN = _IS_OURS.label("known")
_LIVE = (
    exists()
    .where(and_(agents.c.uid == messages.c.recipient, agents.c.retired_at.is_(None)))
    .correlate(messages)
)
# By its bare key SQLite would read all messages in its order, a year of them at each start, instead of the open ones
# by their index.
_by_seq = messages.c.seq + literal_column("0")
_PAST_OPEN = _by_seq > bindparam("after")
_UNADDRESSABLE = prepared(
    select(*COLUMNS, _KNOWN).where(_OPEN, ~_LIVE, _PAST_OPEN).order_by(_by_seq).limit(BATCH)
)

_OPEN_TO = prepared(
    select(*COLUMNS)
    .where(_OPEN, messages.c.recipient == bindparam("to"), _PAST_OPEN)
    .order_by(_by_seq)
    .limit(bindparam("most"))
)

_OPEN_TO_ORG = prepared(
    select(*COLUMNS)
    .join(EVERYWHERE.agents, EVERYWHERE.agents.c.uid == messages.c.recipient)
    .where(_OPEN, EVERYWHERE.agents.c.org == bindparam("of"), _PAST_OPEN)
    .order_by(_by_seq)
    .limit(BATCH)
)

_UNSEEN = messages.c.state.in_((State.ACCEPTED.value, State.DELIVERED.value))
_KEEPS_WAITING = prepared(
    select(messages.c.seq)
    .where(_OPEN, _UNSEEN, messages.c.recipient == bindparam("to"))
    .where(messages.c.requests == false())
    .limit(1)
)

_replies = messages.alias("replies")
_REPLY = and_(
    _replies.c.reply_to == messages.c.id,
    _replies.c.reply_to != "",
    _replies.c.sender == messages.c.recipient,
    _replies.c.recipient == messages.c.sender,
)
_ANSWERED = prepared(
    select(*COLUMNS)
    .where(_OPEN, _PAST_OPEN, exists().where(_REPLY).correlate(messages))
    .order_by(_by_seq)
    .limit(BATCH)
)


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
_anybody = EVERYWHERE.agents
_PERSON = (
    exists()
    .where(_anybody.c.uid == messages.c.recipient, _anybody.c.kind == "human")
    .correlate(messages)
)
_UNTAKEN = select(*COLUMNS).where(
    _OPEN,
    messages.c.state == State.ACCEPTED.value,
    ~_PERSON,
    ~_ALERTED,
    not_(among(messages.c.recipient, "kept")),
)


_UNTAKEN_BEFORE = prepared(
    _UNTAKEN.where(messages.c.stored_at <= bindparam("at"))
    .order_by(messages.c.stored_at)
    .limit(BATCH)
)
_NEXT_UNTAKEN = prepared(
    _UNTAKEN.where(messages.c.stored_at > bindparam("at")).order_by(messages.c.stored_at).limit(1)
)
_WAITING = and_(_OPEN, messages.c.state == State.ACCEPTED.value)
_OWN = exists().where(agents.c.uid == messages.c.sender).correlate(messages)
_WORKER = (
    exists().where(agents.c.uid == messages.c.sender, agents.c.kind == "worker").correlate(messages)
)
# One message of each pair, none where one of them tells already why it waits.
_FIRST = (
    select(func.min(messages.c.seq))
    .group_by(messages.c.sender, messages.c.recipient)
    .having(func.max(messages.c.reason) == "")
    .limit(BATCH)
)
_UNTOLD = prepared(
    _FIRST.where(
        *(_WAITING, ~_PERSON, _OWN, messages.c.stored_at <= bindparam("at")),
        not_(among(messages.c.recipient, "kept")),
    )
)
_UNTOLD_AT_ONCE = prepared(_FIRST.where(_WAITING, _WORKER, among(messages.c.recipient, "to")))
_STATES = prepared(select(messages.c.state, func.count()).where(_OPEN).group_by(messages.c.state))
# What goes to another organisation expires there, or on the way (`mail.relay`).
_EXPIRES = and_(_OPEN, messages.c.expires_at > 0, _IS_OURS)
_EXPIRED = prepared(
    select(*COLUMNS)
    .where(_EXPIRES, messages.c.expires_at <= bindparam("now"))
    .order_by(messages.c.expires_at)
    .limit(BATCH)
)
_NEXT_EXPIRY = prepared(
    select(func.min(messages.c.expires_at)).where(
        _EXPIRES, messages.c.expires_at > bindparam("now")
    )
)
_OPEN_REQUESTS = prepared(
    select(messages.c.seq)
    .where(_OPEN, _PAST_OPEN, messages.c.requests != false())
    .order_by(_by_seq)
    .limit(BATCH)
)


_COUNT_UNTAKEN = prepared(
    select(func.count()).where(
        _OPEN,
        messages.c.state == State.ACCEPTED.value,
        messages.c.recipient == bindparam("to"),
    )
)
_COUNT_WAITING = prepared(
    select(func.count()).select_from(
        select(messages.c.seq)
        .where(_OPEN, _UNSEEN, messages.c.recipient == bindparam("to"))
        .limit(bindparam("most"))
        .subquery()
    )
)
_WAITED_FOR = prepared(
    select(messages.c.recipient)
    .join(agents, agents.c.uid == messages.c.recipient)
    .where(_OPEN, _UNSEEN, messages.c.stored_at < bindparam("before"))
    .where(agents.c.kind == "worker")  # only they have consumers
    .group_by(messages.c.recipient)
    .order_by(func.random())  # more than that take turns
    .limit(bindparam("most"))
)


class PendingStore:
    """What is still to happen to messages.

    Args:
        row: makes a message of a row (`MessageStore.row`).
    """

    def __init__(self, session: Session, row: Callable[..., MessageRow] = MessageRow) -> None:
        self._session = session
        self._row = row

    def unaddressable(self, after: int = 0) -> list[tuple[MessageRow, bool]]:
        """Open messages past sequence `after` whose recipient is unknown or retired, each with whether the directory
        knows it (then it is retired).
        """
        found = self._session.rows(_UNADDRESSABLE, after=after)
        return [(self._row(*row[:-1]), bool(row[-1])) for row in found]

    def open_to(self, recipient: str, after: int, limit: int) -> list[MessageRow]:
        """The first open messages to `recipient` past sequence `after`."""
        named = {"to": recipient, "after": after, "most": limit}
        return self._session.all(self._row, _OPEN_TO, **named)

    def open_to_org(self, org: str, after: int) -> list[MessageRow]:
        """Open messages past sequence `after` to agents of an organisation."""
        return self._session.all(self._row, _OPEN_TO_ORG, of=org, after=after)

    def answered(self, after: int = 0) -> list[MessageRow]:
        """Open messages past sequence `after` to which the log holds a reply of their recipient."""
        return self._session.all(self._row, _ANSWERED, after=after)

    def keeps_waiting(self, recipient: str) -> bool:
        """Whether `recipient` has an unconfirmed message that requests no task: later messages may wait for it."""
        return self._session.scalar(_KEEPS_WAITING, to=recipient) is not None

    def open_requests(self, after: int) -> list[int]:
        """The sequences of open messages that request a task, past sequence `after`."""
        return self._session.column(_OPEN_REQUESTS, after=after)

    def expired(self, now: float) -> list[MessageRow]:
        """Open messages past their expiry, the earliest first."""
        return self._session.all(self._row, _EXPIRED, now=now)

    def next_expiry(self, now: float) -> float | None:
        """The instant at which the next open message expires."""
        return self._session.scalar(_NEXT_EXPIRY, now=now)

    def untaken(self, before: float, kept: Collection[str] = ()) -> list[MessageRow]:
        """Messages to agents, stored before `before`, that nobody took and that have no alert yet; those to `kept`, by
        uid, are not looked for.
        """
        return self._session.all(self._row, _UNTAKEN_BEFORE, at=before, kept=kept)

    def next_untaken(self, after: float, kept: Collection[str] = ()) -> float | None:
        """The instant at which the earliest such message past `after` was stored."""
        first = self._session.first(self._row, _NEXT_UNTAKEN, at=after, kept=kept)
        return None if first is None else first.stored_at

    def untold(self, before: float, kept: Collection[str]) -> list[int]:
        """Sequences of messages of agents of this organisation, stored before `before`, that nobody took and whose
        senders do not know why, the first of each pair; those to `kept`, by uid, are not looked for.
        """
        return self._session.column(_UNTOLD, at=before, kept=kept)

    def untold_at_once(self, recipients: Collection[str]) -> list[int]:
        """The same of workers' messages to `recipients`, whenever they were stored."""
        return self._session.column(_UNTOLD_AT_ONCE, to=recipients) if recipients else []

    def count_untaken(self, recipient: str) -> int:
        """The number of messages to that agent that nobody took."""
        return self._session.scalar(_COUNT_UNTAKEN, to=recipient)

    def waiting(self, recipient: str, most: int) -> int:
        """How many messages wait for that agent, which has not seen them, up to `most`."""
        return self._session.scalar(_COUNT_WAITING, to=recipient, most=most)

    def states(self) -> dict[str, int]:
        """The number of open messages in each state that has any."""
        return dict(self._session.rows(_STATES))

    def recipients_waited_for(self, before: float, limit: int) -> list[str]:
        """Uids of workers with an unseen message from before `before`."""
        return self._session.column(_WAITED_FOR, before=before, most=limit)
