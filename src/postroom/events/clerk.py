"""What follows from the fold of events: people are told of approvals and stalled agents, and what nobody waits for is
withdrawn.

After a crash the clerk may repeat each of these without effect: an alert is known by its cause, and a second answer
settles nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from postroom.errors import StreamFull
from postroom.events.approvals import control_response
from postroom.events.fold import expiry
from postroom.events.service import EventLog
from postroom.observe import get_logger
from postroom.projection.changes import Change
from postroom.projection.due import Due
from postroom.projection.following import After, Quota
from postroom.protocol.alerts import STALLED, Alert, RaiseAlert
from postroom.protocol.approvals import CLOCK, ROOM, Decision
from postroom.protocol.events import EventKind
from postroom.protocol.limits import MAX_DETAIL, SHORT_ID
from postroom.store.alerts import APPROVAL
from postroom.store.approvals import ApprovalRow
from postroom.store.database import Database, Store
from postroom.store.events import EventRow
from postroom_a2a.text import one_line

log = get_logger(__name__)

MOST_ALERTS = 60
ALERT_WINDOW = 600.0
"""The most alerts within so many seconds that a worker's approvals raise; `status` lists further ones all the same."""


LONGEST_STALL = 1e6
"""Seconds of silence that are told; it is a worker's word."""


@dataclass(frozen=True, slots=True)
class Follows:
    """What follows for one pending approval: it is withdrawn for that reason; if there is none, people are told."""

    row: ApprovalRow
    withdrawn: str = ""


@dataclass(frozen=True, slots=True)
class Stall:
    """A worker's agent has said nothing for so many seconds of its turn; 0: it goes on, has ended, or began anew."""

    worker: str
    seconds: float


class ApprovalClerk:
    """Finds what follows for approvals and for agents that stall, and appends it."""

    def __init__(
        self,
        events: EventLog,
        database: Database,
        alert: RaiseAlert,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._events = events
        self._database = database
        self._alert = alert
        self._clock = clock
        self._alerts = Quota(MOST_ALERTS, ALERT_WINDOW)

    @property
    def after(self) -> After:
        """The clerk's work after the fold."""
        return After(find, self.settle, self.sweep)

    async def settle(self, found: Sequence[Follows | Stall]) -> None:
        """Withdraw, or tell people."""
        for each in found:
            if isinstance(each, Stall):
                await self._tell_stall(each)
            elif each.withdrawn:
                await self._withdraw(each.row, each.withdrawn)
            elif self._alerts.take(each.row.worker, self._clock()):
                await self._alert(
                    Alert(APPROVAL, _text(each.row), each.row.worker, about(each.row))
                )
            else:
                log.warning("worker %s asks too often; no alert about it", each.row.worker)

    async def sweep(self) -> None:
        """Do the same for all pending approvals: after a start, and when a worker was removed."""
        after = 0
        while rows := await self._database.read(
            lambda store, after=after: store.approvals.pending_past(after)
        ):
            await self.settle(await self._database.read(lambda store: _follows(store, rows)))
            after = rows[-1].seq

    async def _tell_stall(self, stall: Stall) -> None:
        text = ""
        if stall.seconds:
            if not self._alerts.take(stall.worker, self._clock()):
                return
            text = f"has said nothing for {stall.seconds:.0f} s in its turn"
        await self._alert(Alert(STALLED, text, stall.worker))

    async def _withdraw(self, row: ApprovalRow, why: str) -> None:
        event = control_response(row, Decision.WITHDRAWN, ROOM, why)
        try:
            await self._events.append(row.worker, [event])
        except StreamFull as error:
            # What follows for others must not wait for room in EVENTS; the next sweep does it.
            log.warning("approval %s cannot be withdrawn yet: %s", row.id, error)


def find(store: Store, changes: Sequence[Change]) -> list[Follows | Stall]:
    """What follows from the changes of one commit."""
    stalls = {
        event.worker: stall
        for change in changes
        if change.kind == "event"
        for event in change.row
        if (stall := _stall(event)) is not None
    }
    return [*_of_approvals(store, changes), *stalls.values()]


def _stall(event: EventRow) -> Stall | None:
    if event.kind in (EventKind.STARTED, EventKind.RESULT):
        return Stall(event.worker, 0.0)
    if event.kind != EventKind.STALLED:
        return None
    said = json.loads(event.event).get("seconds")
    known = isinstance(said, int | float) and 0 <= said <= LONGEST_STALL
    return Stall(event.worker, float(said) if known else LONGEST_STALL)


def _of_approvals(store: Store, changes: Sequence[Change]) -> list[Follows]:
    rows: dict[int, ApprovalRow] = {}
    for change in changes:
        if change.kind == "event" and change.id:
            for event in change.row:
                if event.kind == EventKind.CONTROL_REQUEST and event.request:
                    row = store.approvals.of(event.worker, event.request)
                    if row is not None and row.pending:
                        rows[row.seq] = row
    ended = {change.id for change in changes if change.kind == "task" and change.row.final}
    if ended:
        rows |= {row.seq: row for row in store.approvals.pending_of_tasks(ended)}
    return _follows(store, list(rows.values())) if rows else []


def _follows(store: Store, rows: Collection[ApprovalRow]) -> list[Follows]:
    tasks = {head.id: head for head in store.tasks.heads_by_ids({r.task for r in rows if r.task})}
    workers = store.agents.agents_by_uid({row.worker for row in rows})
    found = []
    for row in rows:
        worker, task = workers.get(row.worker), tasks.get(row.task)
        if worker is None or worker.retired:
            found.append(Follows(row, "the worker was removed"))
        # A worker may name any task: only the end of one of its own counts.
        elif task is not None and task.final and task.worker == row.worker:
            found.append(Follows(row, f"its task is {task.state}"))
        elif not store.alerts.is_raised(APPROVAL, about(row)):
            found.append(Follows(row))
    return found


def about(row: ApprovalRow) -> str:
    """What the alert about an approval is about: two workers may use the same id."""
    return f"{row.id}/{row.seq}"


def _text(row: ApprovalRow) -> str:
    asked, short = row.request, row.id[:SHORT_ID]
    ways = f"postroom approve {short}, or: postroom deny {short}"
    if row.is_act:
        return f"asks its owner: {one_line(str(asked.get('title')), MAX_DETAIL)}; {ways}"
    said = ": ".join(
        one_line(value, MAX_DETAIL)
        for key in ("tool", "title")
        if isinstance(value := asked.get(key), str) and value
    )
    return f"asks to use {said or 'a tool'}; {ways}"


class ApprovalExpiry:
    """The job that lets approvals expire (`projection.due`)."""

    def __init__(self, events: EventLog, database: Database) -> None:
        self._events = events
        self._database = database

    async def find(self, now: float) -> Due[ApprovalRow]:
        """Pending approvals whose `expires_at` has passed."""
        return await self._database.read(
            lambda store: Due(store.approvals.expired(now), store.approvals.next_expiry(now))
        )

    def due_at(self, row: Sequence[EventRow]) -> float | None:
        """When the first of those that events ask for expires."""
        instants = [
            at
            for event in row
            if event.kind == EventKind.CONTROL_REQUEST
            and (at := expiry(json.loads(event.event))) is not None
        ]
        return min(instants, default=None)

    async def act(self, row: ApprovalRow) -> None:
        """Append that it has expired."""
        await self._events.append(row.worker, [control_response(row, Decision.EXPIRED, CLOCK, "")])
