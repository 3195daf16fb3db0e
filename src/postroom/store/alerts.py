"""Alerts as rows: one for each cause, from its first record to its end.

An alert stands until its end is stored, or until the projection shows that its cause has gone: the messages were
taken, the question was answered, the agent was removed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

from sqlalchemy import (
    ColumnElement,
    delete,
    exists,
    false,
    or_,
    select,
    update,
)

from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.receipts import State
from postroom.store.messages import page
from postroom.store.schema import agents, alerts, messages
from postroom.store.session import Session, insert_new, prepared, values_of

STALE = "stale"
"""Kind of the alert about an agent that does not take its messages."""

QUESTION = "input-required"
"""Kind of the alert about a task that waits for an answer; its `about` is `<task>/<sequence of the question>`."""

SILENT = "silent"
"""Kind of the alert about a task of which its agent says nothing; its `about` is `<task>/<sequence>`."""

OF_TASKS = (QUESTION, SILENT)
"""Kinds of alerts that stand for as long as their task stays at that sequence."""

APPROVAL = "approval"
"""Kind of the alert about an approval, which stands while that is pending; its `about` is `<id>/<event that asked>`."""

WHILE = (*OF_TASKS, APPROVAL)
"""Kinds of alerts that stand while something in the projection is as it was."""

FLOOD = "worker-flood"
"""Kind of the alert about a worker that its door slows down; while that lasts, it is raised again each minute."""

FLOOD_LASTS = 300.0
"""Seconds without a further alert after which a flood is over."""

MOST_OF_AGENT = 5
"""An agent's own alerts that are kept: an agent that raises many loses only its own."""

MOST = 500
"""The newest alerts of the post office, that are kept."""


@dataclass(frozen=True, slots=True)
class AlertRow:
    """An alert, standing or ended.

    Attributes:
        id: sequence in ALERTS of its first record.
        kind, about: the cause that the post office names; "" in an alert that an agent has raised.
        who: uid of the agent that it is about, "" for the post room.
        count: how often it was raised.
        first_at, at: when it was raised first and last.
        ended_at, ended: when and why a record ended it; None and "" until then.
    """

    id: int
    seq: int
    sender: str
    kind: str
    about: str
    who: str
    text: str
    first_at: float
    at: float
    count: int = 1
    ended_at: float | None = None
    ended: str = ""


_NEW = insert_new(alerts)
_COLUMNS = [alerts.c[field.name] for field in fields(AlertRow)]

_REMOVED = exists().where(agents.c.uid == alerts.c.who, agents.c.retired_at.is_not(None))
_UNTAKEN = exists().where(
    messages.c.final == false(),
    messages.c.state == State.ACCEPTED.value,
    messages.c.recipient == alerts.c.who,
    messages.c.stored_at <= alerts.c.at,
)
_ABOUT = select(alerts.c.id, alerts.c.about).where(
    alerts.c.sender == CONTROL_PLANE, alerts.c.ended_at.is_(None)
)
_TASKS = prepared(_ABOUT.where(alerts.c.kind.in_(OF_TASKS)))
_APPROVALS = prepared(_ABOUT.where(alerts.c.kind == APPROVAL))


class AlertStore:
    """Alerts by their cause."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def raised(self, row: AlertRow) -> None:
        """Fold a record that raises an alert, once: a new alert, or a repetition of the one that stands for the same
        cause.
        """
        folded = exists().where(alerts.c.sender == row.sender, alerts.c.seq >= row.seq)
        if self._session.scalar(select(folded)):
            return
        same: list[ColumnElement[bool]] = [alerts.c.ended_at.is_(None)]
        same += [
            alerts.c[name] == getattr(row, name) for name in ("sender", "kind", "about", "who")
        ]
        if not row.kind:
            same.append(alerts.c.text == row.text)
        again = update(alerts).where(*same)
        again = again.values(seq=row.seq, text=row.text, at=row.at, count=alerts.c.count + 1)
        if self._session.run(again):
            return
        self._session.run(_NEW, values_of(row))
        most = MOST if row.sender == CONTROL_PLANE else MOST_OF_AGENT
        newest = (
            select(alerts.c.id).where(alerts.c.sender == row.sender).order_by(alerts.c.seq.desc())
        )
        self._session.run(
            delete(alerts).where(
                alerts.c.sender == row.sender,
                alerts.c.id.not_in(newest.limit(most).scalar_subquery()),
            )
        )

    def ended(
        self,
        why: str,
        at: float,
        *,
        upto: int,
        id: int,  # noqa: A002
        **cause: str,
    ) -> int:
        """Fold a record that ends alerts; returns how many.

        Args:
            upto: only alerts that were not raised after this sequence.
            id: of one alert, 0 for any.
            cause: `kind`, `about` and `who` of the alerts; "" for any.
        """
        those: list[ColumnElement[bool]] = [alerts.c.ended_at.is_(None), alerts.c.seq <= upto]
        those += [alerts.c[name] == value for name, value in cause.items() if value]
        if id:
            those.append(alerts.c.id == id)
        done = update(alerts).where(*those).values(ended_at=at, ended=why)
        return self._session.run(done)

    def of_tasks(self) -> dict[int, str]:
        """Id to `about` of each alert about a task (`OF_TASKS`) that no record has ended."""
        return dict(self._session.rows(_TASKS))

    def of_approvals(self) -> dict[int, str]:
        """Id to `about` of each alert about an approval that no record has ended."""
        return dict(self._session.rows(_APPROVALS))

    def standing(
        self, now: float, limit: int, kinds: Sequence[str] = (), *, present: Collection[int]
    ) -> list[AlertRow]:
        """The alerts that stand at `now`: first those of the post office, then those of agents, each newest first.

        Args:
            present: ids of `of_tasks` and `of_approvals` whose cause is still as it was then.
        """
        found = select(*_COLUMNS).where(
            alerts.c.ended_at.is_(None),
            ~_REMOVED,
            or_(alerts.c.kind != STALE, _UNTAKEN),
            or_(alerts.c.kind.not_in(WHILE), alerts.c.id.in_(present)),
            or_(alerts.c.kind != FLOOD, alerts.c.at > now - FLOOD_LASTS),
        )
        if kinds:
            found = found.where(alerts.c.kind.in_(kinds))
        found = found.order_by(alerts.c.sender != CONTROL_PLANE, alerts.c.seq.desc())
        return self._session.all(AlertRow, found.limit(page(limit)))

    def newest(self, limit: int) -> list[AlertRow]:
        """The newest alerts, standing or ended, newest first."""
        found = select(*_COLUMNS).order_by(alerts.c.seq.desc()).limit(page(limit))
        return self._session.all(AlertRow, found)

    def is_raised(self, kind: str, about: str) -> bool:
        """Whether the post office has ever raised an alert with that cause."""
        found = select(alerts.c.id).where(alerts.c.kind == kind, alerts.c.about == about).limit(1)
        return self._session.scalar(found) is not None
