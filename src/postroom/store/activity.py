"""What happens in a project beside its posts, found in the rows that are there: nothing is written for it.

Each method gives what came past a number of one source, oldest first, or with `after` None the newest of all, or those
below the number `before`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, literal, or_, select

from postroom.store.messages import page
from postroom.store.schema import (
    agents,
    alerts,
    memberships,
    sdk_events,
)
from postroom.store.session import Session

FAILURES = ("worker-not-started", "worker-ended", "worker-limit")
"""Kinds of the alerts about a worker that has failed."""

_MICROS = 1_000_000

_END = 2**62
"""Above each number."""


@dataclass(frozen=True, slots=True)
class CameOrWent:
    """An agent that joined a project or left it; `number` is the instant in microseconds since the epoch."""

    number: int
    uid: str
    nick: str
    kind: str
    joined: bool


@dataclass(frozen=True, slots=True)
class FailureRow:
    """A worker that has failed; `number` is the sequence in ALERTS."""

    number: int
    who: str
    text: str
    at: float


@dataclass(frozen=True, slots=True)
class RequestRow:
    """An approval that was asked for, or settled.

    Attributes:
        number: id of the event that this row is about.
        request: the approval's id.
        settles: that event settles it.
        asked, answered: the events as JSON; `answered` is None while it is pending.
    """

    number: int
    worker: str
    request: str
    task: str
    settles: bool
    asked: str
    answered: str | None
    at: float


_asked, _settles = sdk_events.alias("asked"), sdk_events.alias("settles")


class ActivityStore:
    """Queries over identity, tasks, events and alerts, each on its own."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def members(self, project: str) -> list[str]:
        """The uids of all that are or were in a project."""
        found = select(memberships.c.uid).where(memberships.c.project == project)
        return self._session.column(found)

    def came_or_went(
        self, of: Collection[str], after: int | None, limit: int, before: int = _END
    ) -> list[CameOrWent]:
        """Those among `of` that joined or left."""
        past = (after or 0) / _MICROS
        wanted = select(
            agents.c.uid, agents.c.nick, agents.c.kind, agents.c.created_at, agents.c.retired_at
        ).where(agents.c.uid.in_(of), or_(agents.c.created_at > past, agents.c.retired_at > past))
        found = [
            CameOrWent(number, uid, nick, kind, joined)
            for uid, nick, kind, came, went in self._session.rows(wanted)
            for joined, at in ((True, came), (False, went))
            if at is not None and (after or 0) < (number := int(at * _MICROS)) < before
        ]
        found.sort(key=lambda one: one.number)
        return found[:limit] if after is not None else found[-limit:]

    def requests(
        self, of: Collection[str], after: int | None, limit: int, before: int = _END
    ) -> list[RequestRow]:
        """What those workers ask to be allowed, and how that was decided."""
        both = _asked.outerjoin(_settles, _settles.c.id == _asked.c.settled)
        found: list[RequestRow] = []
        for said in (_asked, _settles):
            wanted = (
                select(
                    said.c.id,
                    _asked.c.worker,
                    _asked.c.request,
                    _asked.c.task,
                    literal(said is _settles),
                    _asked.c.event,
                    _settles.c.event,
                    said.c.at,
                )
                .select_from(both)
                .where(_asked.c.settled.is_not(None), _asked.c.worker.in_(of))
                .where(said.c.id.is_not(None))
            )
            found += self._found(RequestRow, wanted, said.c.id, after, limit, before)
        found.sort(key=lambda row: row.number)
        return found[:limit] if after is not None else found[-limit:]

    def failures(
        self, of: Collection[str], after: int | None, limit: int, before: int = _END
    ) -> list[FailureRow]:
        """Those workers that have failed."""
        wanted = select(alerts.c.seq, alerts.c.who, alerts.c.text, alerts.c.at).where(
            alerts.c.who.in_(of), alerts.c.kind.in_(FAILURES)
        )
        return self._found(FailureRow, wanted, alerts.c.seq, after, limit, before)

    def _found(
        self,
        shape: type,
        wanted: Any,
        number: ColumnElement[int],
        after: int | None,
        limit: int,
        before: int,
    ) -> list[Any]:
        if after is None:
            newest = wanted.where(number < before).order_by(number.desc()).limit(page(limit))
            return self._session.all(shape, newest)[::-1]
        past = wanted.where(number > after).order_by(number).limit(page(limit))
        return self._session.all(shape, past)
