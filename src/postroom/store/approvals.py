"""Approvals: rows of `sdk_events` whose `settled` is not null, each with the event that settled it.

An id is of one worker: another worker that uses the same id makes an approval of its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, func, literal_column, select, update

from postroom.protocol.approvals import Decision
from postroom.protocol.events import EventKind
from postroom.protocol.limits import MAX_PENDING_APPROVALS
from postroom.store.messages import page
from postroom.store.schema import sdk_events
from postroom.store.session import Prepared, Session, among, prepared

BATCH = 256
"""The most approvals of one query that a caller repeats."""


@dataclass(frozen=True)
class ApprovalRow:
    """An approval.

    Attributes:
        seq: id of the event that asked for it.
        worker: uid.
        id: the agent's; the same for the same question.
        task, message: what the turn is for, "" for neither.
        asked: the event, as JSON.
        settled: id of the event that settled it, 0 while it is pending.
        expires_at: seconds since the epoch; None for never.
        answered: that event, as JSON, with when it was stored; None while it is pending, or where it was pruned.
        run: of who reported it; "" for an act, which the control plane asks for.
    """

    seq: int
    worker: str
    id: str
    task: str
    message: str
    asked: str
    asked_at: float
    settled: int
    expires_at: float | None
    answered: str | None
    answered_at: float | None
    run: str

    @property
    def is_act(self) -> bool:
        """Whether the control plane asks for it, in the name of `worker`."""
        return not self.run

    @cached_property
    def request(self) -> Mapping[str, Any]:
        """The event that asked for it."""
        return json.loads(self.asked)

    @cached_property
    def response(self) -> Mapping[str, Any]:
        """The event that settled it; {} while it is pending."""
        return json.loads(self.answered) if self.answered else {}

    @property
    def state(self) -> Decision:
        """Its state."""
        return (
            Decision(self.response.get("decision", Decision.PENDING))
            if self.settled
            else Decision.PENDING
        )

    @property
    def pending(self) -> bool:
        """Whether nothing has settled it."""
        return not self.settled


@dataclass(frozen=True, slots=True)
class SaidRow:
    """An event of the control plane that the sidecar of a worker is to hear of."""

    id: int
    kind: str
    request: str
    event: str
    at: float


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """An answer of a person that came too late."""

    id: int
    worker: str
    request: str
    event: str
    at: float


_asked = sdk_events
_answered = sdk_events.alias("answered")
# As the partial indexes say it.
_IS_APPROVAL = _asked.c.settled.is_not(None)
_PENDING = _asked.c.settled == literal_column("0")
_SELECT = select(
    _asked.c.id,
    _asked.c.worker,
    _asked.c.request,
    _asked.c.task,
    _asked.c.message,
    _asked.c.event,
    _asked.c.at,
    _asked.c.settled,
    _asked.c.expires_at,
    _answered.c.event,
    _answered.c.at,
    _asked.c.run,
).select_from(_asked.outerjoin(_answered, _answered.c.id == _asked.c.settled))


_HOW_MANY = prepared(select(func.count()).where(_PENDING))


def _find(*conditions: ColumnElement[bool]) -> Prepared:
    return prepared(_SELECT.where(*conditions))


_OF = (_asked.c.worker == bindparam("of"), _asked.c.request == bindparam("named"))
_ONE = _find(_IS_APPROVAL, *_OF)
_AT = _find(_IS_APPROVAL, _asked.c.id == bindparam("at"))
_EXPIRED = prepared(
    _SELECT.where(_PENDING, _asked.c.expires_at <= bindparam("now"))
    .order_by(_asked.c.id)
    .limit(BATCH)
)
_NEXT_EXPIRY = prepared(
    select(func.min(_asked.c.expires_at)).where(_PENDING, _asked.c.expires_at > bindparam("now"))
)
_ALL_PENDING = prepared(
    _SELECT.where(_PENDING, _asked.c.id > bindparam("after")).order_by(_asked.c.id).limit(BATCH)
)
_OF_TASKS = prepared(_SELECT.where(_PENDING, among(_asked.c.task, "named")))
_PENDING_OF = prepared(select(func.count()).where(_PENDING, _asked.c.worker == bindparam("of")))
_ASK = prepared(
    update(sdk_events)
    .where(sdk_events.c.id == bindparam("asked"))
    .values(settled=literal_column("0"), expires_at=bindparam("expiry"))
)
_SETTLING = (
    update(sdk_events)
    .where(sdk_events.c.worker == bindparam("of"), sdk_events.c.request == bindparam("named"))
    .where(sdk_events.c.settled == literal_column("0"), sdk_events.c.id < bindparam("answer"))
    .values(settled=bindparam("answer"))
)
# What a sidecar reports settles nothing that the control plane has asked for.
_SETTLE_REPORTED = prepared(_SETTLING.where(sdk_events.c.run != literal_column("''")))
_SETTLE = prepared(_SETTLING)
_ACTS = _find(_PENDING, _asked.c.worker == bindparam("of"), _asked.c.run == literal_column("''"))
_acted = sdk_events.alias("acted")
_UNDONE = prepared(
    _SELECT.where(
        _IS_APPROVAL,
        _asked.c.settled != literal_column("0"),
        _asked.c.run == literal_column("''"),
        ~select(literal_column("1"))
        .where(
            _acted.c.request == _asked.c.request,
            _acted.c.request != literal_column("''"),
            _acted.c.worker == _asked.c.worker,
            _acted.c.kind == EventKind.ACTED.value,
            _acted.c.run == literal_column("''"),
        )
        .exists(),
    )
    .order_by(_asked.c.settled)
    .limit(BATCH)
)
_OUTCOMES = prepared(
    select(_asked.c.worker, _asked.c.request, _asked.c.event).where(
        among(_asked.c.request, "named"),
        _asked.c.request != literal_column("''"),
        _asked.c.kind == EventKind.ACTED.value,
        _asked.c.run == literal_column("''"),
    )
)
_LATE = prepared(
    select(_asked.c.id, _asked.c.worker, _asked.c.request, _asked.c.event, _asked.c.at).where(
        among(_asked.c.request, "named"),
        _asked.c.request != literal_column("''"),
        _asked.c.kind == EventKind.CONTROL_RESPONSE.value,
        _asked.c.run == literal_column("''"),
    )
)
_PENDING_AMONG = prepared(select(_asked.c.id).where(_PENDING, among(_asked.c.id, "ids")))
_HEARD = tuple(
    kind.value
    for kind in (
        EventKind.CONTROL_RESPONSE,
        EventKind.INTERRUPT,
        EventKind.POLICY,
        EventKind.TERMINAL,
    )
)
_ABOUT = prepared(
    select(_asked.c.id, _asked.c.worker, _asked.c.request)
    .where(_asked.c.id > bindparam("after"))
    .where(_asked.c.kind.in_((EventKind.CONTROL_REQUEST.value, EventKind.CONTROL_RESPONSE.value)))
    .order_by(_asked.c.id)
    .limit(bindparam("most"))
)
_settles = sdk_events.alias("settles")
_SAID = prepared(
    select(_asked.c.id, _asked.c.kind, _asked.c.request, _asked.c.event, _asked.c.at)
    # An answer that came too late settles nothing, and nobody is told of it.
    .select_from(
        _asked.outerjoin(
            _settles,
            and_(
                _asked.c.request != literal_column("''"),
                _settles.c.request == _asked.c.request,
                _settles.c.worker == _asked.c.worker,
                _settles.c.settled == _asked.c.id,
                _settles.c.run != literal_column("''"),  # an act is not the sidecar's
            ),
        )
    )
    .where(_asked.c.worker == bindparam("of"), _asked.c.run == literal_column("''"))
    .where(_asked.c.number > bindparam("after"), _asked.c.kind.in_(_HEARD))
    .where((_asked.c.kind != EventKind.CONTROL_RESPONSE.value) | _settles.c.id.is_not(None))
    .order_by(_asked.c.number)
    .limit(bindparam("most"))
)


class ApprovalStore:
    """Approvals of an organisation."""

    def __init__(self, session: Session) -> None:
        self._session = session

    # ── folding ──

    def ask(self, event: int, worker: str, request: str, expires_at: float | None) -> bool:
        """Make the stored event `event` an approval, unless its worker has one with that id, or too many pending."""
        if self.of(worker, request) is not None:
            return False
        if self.count_pending_of(worker) >= MAX_PENDING_APPROVALS:
            return False
        return bool(self._session.run(_ASK, {"asked": event, "expiry": expires_at}))

    def settle(self, event: int, worker: str, request: str, *, reported: bool) -> bool:
        """Settle the approval with that id by the stored event `event`, unless it is settled or asked later.

        Args:
            reported: by a sidecar, which settles no act.
        """
        settling = _SETTLE_REPORTED if reported else _SETTLE
        return bool(self._session.run(settling, {"of": worker, "named": request, "answer": event}))

    # ── acts ──

    def act(self, worker: str, tool: str, given: Mapping[str, Any]) -> ApprovalRow | None:
        """The pending act of `worker` that is this operation with these fields."""
        rows = self._session.all(ApprovalRow, _ACTS, of=worker)
        return next(
            (row for row in rows if (row.request["tool"], row.request["input"]) == (tool, given)),
            None,
        )

    def undone(self) -> list[ApprovalRow]:
        """Settled acts of which nobody has noted what became of them, the first settled first."""
        return self._session.all(ApprovalRow, _UNDONE)

    def outcomes(self, rows: Collection[ApprovalRow]) -> dict[tuple[str, str], Mapping[str, Any]]:
        """What became of those of `rows` that are settled acts, by worker and id."""
        named = [row.id for row in rows if row.is_act and row.settled]
        found = self._session.rows(_OUTCOMES, named=named) if named else ()
        return {(worker, request): json.loads(event) for worker, request, event in found}

    def count_pending_of(self, worker: str) -> int:
        """How many of one agent wait for an answer."""
        return self._session.scalar(_PENDING_OF, of=worker)

    # ── reading ──

    def of(self, worker: str, request: str) -> ApprovalRow | None:
        """The approval of `worker` with that id."""
        return self._session.first(ApprovalRow, _ONE, of=worker, named=request)

    def at(self, event: int) -> ApprovalRow | None:
        """The approval that the event with that id asked for."""
        return self._session.first(ApprovalRow, _AT, at=event)

    def named(self, prefix: str, limit: int, worker: str = "") -> list[ApprovalRow]:
        """Approvals whose id begins with those hexadecimal digits, of one worker if it is given."""
        found = _SELECT.where(
            _IS_APPROVAL, _asked.c.request >= prefix, _asked.c.request < prefix + "g"
        )
        if worker:
            found = found.where(_asked.c.worker == worker)
        return self._session.all(ApprovalRow, found.order_by(_asked.c.request).limit(page(limit)))

    def newest(
        self,
        limit: int,
        *,
        before: int = 0,
        worker: str = "",
        of: Collection[str] | None = None,
        pending: bool = False,
    ) -> list[ApprovalRow]:
        """The newest approvals, asked for by events before `before` (0 for all), newest first.

        Args:
            of: uids of the agents whose approvals alone are looked at; None for all.
        """
        found = _SELECT.where(_PENDING if pending else _IS_APPROVAL)
        if before:
            found = found.where(_asked.c.id < before)
        if worker:
            found = found.where(_asked.c.worker == worker)
        if of is not None:
            found = found.where(_asked.c.worker.in_(of))
        return self._session.all(ApprovalRow, found.order_by(_asked.c.id.desc()).limit(page(limit)))

    def count_pending(self) -> int:
        """How many wait for an answer."""
        return self._session.scalar(_HOW_MANY)

    def pending_past(self, after: int) -> list[ApprovalRow]:
        """Pending approvals that events past `after` asked for, oldest first."""
        return self._session.all(ApprovalRow, _ALL_PENDING, after=after)

    def news_past(self, after: int, limit: int) -> list[tuple[int, ApprovalRow | None]]:
        """Events past `after` that ask or answer, oldest first, at most `limit`.

        Each has its id, and the approval that it made or settled; None where it did neither, and where what it made is
        settled, which a later event tells. It looks at every event past `after`, so a caller keeps that near the end.
        """
        found = []
        for event, worker, request in self._session.rows(_ABOUT, after=after, most=page(limit)):
            row = self.of(worker, request)
            tells = row is not None and event == (row.settled or row.seq)
            found.append((event, row if tells else None))
        return found

    def about(self, event: int) -> ApprovalRow | None:
        """The approval that the event with that id asks for or answers."""
        for found, worker, request in self._session.rows(_ABOUT, after=event - 1, most=1):
            return self.of(worker, request) if found == event else None
        return None

    def pending_of_tasks(self, tasks: Collection[str]) -> list[ApprovalRow]:
        """Pending approvals that are for one of these tasks, as their workers say."""
        return self._session.all(ApprovalRow, _OF_TASKS, named=list(tasks))

    def late(self, rows: Collection[ApprovalRow]) -> list[AnswerRow]:
        """What people answered to these approvals when they were settled, oldest first."""
        settled = {(row.worker, row.id): row.settled for row in rows if row.settled}
        if not settled:
            return []
        found = self._session.all(AnswerRow, _LATE, named=[named for _, named in settled])
        return sorted(
            (each for each in found if each.id > settled.get((each.worker, each.request), each.id)),
            key=lambda each: each.id,
        )

    def pending_among(self, events: Collection[int]) -> set[int]:
        """Those of these ids of events that are pending approvals."""
        return set(self._session.column(_PENDING_AMONG, ids=list(events)))

    def expired(self, now: float) -> list[ApprovalRow]:
        """Pending approvals past their expiry."""
        return self._session.all(ApprovalRow, _EXPIRED, now=now)

    def next_expiry(self, now: float) -> float | None:
        """The instant at which the next pending approval expires."""
        return self._session.scalar(_NEXT_EXPIRY, now=now)

    def said_to(self, worker: str, after: int, limit: int) -> list[SaidRow]:
        """What the control plane has said to the sidecar of `worker` past the event `after`, oldest first."""
        return self._session.all(SaidRow, _SAID, of=worker, after=after, most=page(limit))
