"""Alerts: people list and clear them; the control plane raises and ends them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from postroom.bus.port import BusAdmin, MessageBusProvider
from postroom.errors import NotFound, PostroomError
from postroom.observe import get_logger
from postroom.projection.changes import ALERTS, FOLD_WAIT, Changes
from postroom.projection.submit import append_alert
from postroom.protocol import shapes
from postroom.protocol.alerts import Alert, AlertEnd
from postroom.store.agents import Party
from postroom.store.alerts import MOST, WHILE, AlertRow
from postroom.store.database import Database, Store
from postroom_a2a.times import format_time

log = get_logger(__name__)

CLEARED, GONE = "cleared", "its cause has gone"
"""Reasons why an alert ended."""


@dataclass(frozen=True, slots=True)
class AlertView:
    """An alert as people see it: one line about one agent, or about the post room (`who` is None)."""

    row: AlertRow
    who: Party | None
    stands: bool

    def as_json(self) -> shapes.Alert:
        """Shape of the API."""
        row = self.row
        return {
            "id": row.id,
            "at": format_time(row.at),
            "first_at": format_time(row.first_at),
            "count": row.count,
            "nick": self.who.nick if self.who else "",
            "who": self.who.as_json() if self.who else None,
            "kind": row.kind,
            "text": row.text,
            "ended": "" if self.stands else row.ended or GONE,
            "ended_at": None if row.ended_at is None else format_time(row.ended_at),
        }


class AlertService:
    """The alerts of an organisation.

    Args:
        space: asked before a person's request is written; raises `StateUnwritable` while the disk is full.
    """

    def __init__(
        self,
        bus: MessageBusProvider,
        admin: BusAdmin,
        database: Database,
        changes: Changes,
        *,
        space: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._admin = admin
        self._database = database
        self._changes = changes
        self._space = space
        self._clock = clock

    async def standing(self, limit: int = MOST, kinds: Sequence[str] = ()) -> list[AlertView]:
        """The alerts that stand: first those of the post office, then those of agents, each newest first."""
        return await self._database.read(
            partial(_standing, now=self._clock(), limit=limit, kinds=kinds)
        )

    async def all(self, limit: int = MOST) -> list[AlertView]:
        """The newest alerts, ended ones too, newest first."""
        return await self._database.read(partial(_all, now=self._clock(), limit=limit))

    async def clear(self, alert: int = 0) -> int:
        """End the alert with that id, or all alerts (0) that stand now; returns how many.

        Raises:
            NotFound: no such alert stands.
            StateUnwritable, RequestTimeout, BusDisconnected: perhaps not stored; call again.
        """
        wanted = {view.row.id: view.row.seq for view in await self.standing()}
        if alert:
            if alert not in wanted:
                raise NotFound(f"no alert {alert} stands", remedy="postroom alerts")
            wanted = {alert: wanted[alert]}
        if not wanted:
            return 0
        self._space()
        # An alert that is raised meanwhile has not been seen by anybody.
        await append_alert(self._bus, AlertEnd(CLEARED, id=alert, upto=max(wanted.values())))

        async def left() -> bool:
            return any(view.row.id in wanted for view in await self.standing())

        await self._changes.until(ALERTS, left, lambda some: not some, FOLD_WAIT)
        return len(wanted)

    async def raise_alert(self, alert: Alert) -> None:
        """See `protocol.alerts.RaiseAlert`; it never raises, because nobody who raises an alert has another way."""
        try:
            await self.tell(alert)
        except PostroomError as error:
            log.error("the alert %s could not be stored: %s: %s", alert.kind, alert.text, error)

    async def tell(self, alert: Alert) -> None:
        """As `raise_alert`, for who tries again.

        Raises:
            PostroomError: perhaps not stored.
        """
        if alert.text:
            await append_alert(self._bus, alert)
        else:
            await self._end(GONE, alert.kind, alert.who, alert.about)

    async def reached(self) -> int:
        """Sequence of the last record of ALERTS; 0 where the bus does not say."""
        try:
            return await self._admin.last_sequence("ALERTS")
        except PostroomError as error:
            log.warning("which alerts there are is not known: %s", error)
            return 0

    async def end(
        self, why: str, kind: str = "", who: str = "", about: str = "", upto: int = 0
    ) -> None:
        """End the alerts that match every given field (see `protocol.alerts.AlertEnd`); it never raises. Appends
        nothing where none can match.
        """
        try:
            await self._end(why, kind, who, about, upto)
        except PostroomError as error:
            log.error("an alert that is over could not be ended: %s", error)

    async def _end(self, why: str, kind: str, who: str, about: str, upto: int = 0) -> None:
        now, upto = self._clock(), upto or await self.reached()

        def needed(store: Store) -> bool:
            rows = _rows(store, now, MOST, [kind] if kind else [])
            folded = store.cursor("ALERTS")
            return folded < upto or any(row.who == who and about in ("", row.about) for row in rows)

        if await self._database.read(needed):
            await append_alert(self._bus, AlertEnd(why, kind=kind, about=about, who=who, upto=upto))


def _standing(store: Store, now: float, limit: int, kinds: Sequence[str] = ()) -> list[AlertView]:
    rows = _rows(store, now, limit, kinds)
    return _shown(store, rows, {row.id for row in rows})


def _rows(store: Store, now: float, limit: int, kinds: Sequence[str] = ()) -> list[AlertRow]:
    present = _present(store) if not kinds or {*WHILE} & {*kinds} else []
    return store.alerts.standing(now, limit, kinds, present=present)


def _present(store: Store) -> list[int]:
    """The ids of the alerts about what is still as it was then: tasks that wait or say nothing, pending approvals."""
    raised = {id_: about.split("/") for id_, about in store.alerts.of_tasks().items()}
    heads = store.tasks.heads_by_ids({about[0] for about in raised.values()})
    open_at = {head.id: str(head.seq) for head in heads if not head.final}
    of_tasks = [id_ for id_, (task, *seq) in raised.items() if [open_at.get(task)] == seq]
    asked = {
        id_: int(about.rpartition("/")[2]) for id_, about in store.alerts.of_approvals().items()
    }
    pending = store.approvals.pending_among(asked.values()) if asked else set()
    return of_tasks + [id_ for id_, event in asked.items() if event in pending]


def _all(store: Store, now: float, limit: int) -> list[AlertView]:
    standing = {row.id for row in _rows(store, now, MOST)}
    return _shown(store, store.alerts.newest(limit), standing)


def _shown(store: Store, rows: Sequence[AlertRow], standing: set[int]) -> list[AlertView]:
    known = store.agents.parties(row.who for row in rows if row.who)
    return [AlertView(row, known.get(row.who), row.id in standing) for row in rows]
