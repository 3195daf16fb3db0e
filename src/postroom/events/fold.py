"""The rule of stream EVENTS: each event that was not there yet becomes a row.

What is in an event is an agent's word. It is kept as it is, and only what is of the right form gets into a column. Of
an approval the log's order alone decides which answer is the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from postroom.bus.port import Message
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.projection.changes import Change
from postroom.projection.retention import Over
from postroom.projection.rules import Rule
from postroom.protocol import subjects
from postroom.protocol.approvals import ACT, counts, request_of
from postroom.protocol.events import PLACES, EventBatch, EventKind, event_id
from postroom.protocol.limits import MAX_LABEL
from postroom.store.database import Store
from postroom.store.events import EventRow
from postroom_a2a import strict_json
from postroom_a2a.times import parse_time

MOST_TOKENS = 10**9
"""Tokens of one event that count: sums stay integers of SQL, however many events a worker reports."""

MOST_COST = 1e9
"""US dollars of one event that count."""

_KINDS = frozenset(kind.value for kind in EventKind)
_REPORTED = _KINDS - {
    kind.value
    for kind in (EventKind.INTERRUPT, EventKind.POLICY, EventKind.TERMINAL, EventKind.ACTED)
}
"""What a sidecar may report: the others are said by people, or done, which the control plane alone knows."""


def fold_approval(
    store: Store,
    event_id: int,
    worker: str,
    run: str,
    event: Mapping[str, Any],
) -> bool:
    """Fold a stored event into the approval that it is about; returns whether it made or settled one.

    Args:
        event_id: of the event, whose row is in `sdk_events` with `request_of(event)`.
        run: of the sidecar that reported it, "" for an event of the control plane.
    """
    request, kind = request_of(event), event.get("type")
    if not request:
        return False
    if kind == EventKind.CONTROL_REQUEST and (run or _is_new_act(store, worker, event)):
        return store.approvals.ask(event_id, worker, request, expiry(event))
    if kind == EventKind.CONTROL_RESPONSE and counts(event, reported=bool(run)):
        return store.approvals.settle(event_id, worker, request, reported=bool(run))
    return False


def _is_new_act(store: Store, worker: str, event: Mapping[str, Any]) -> bool:
    """Whether the control plane asks for an act that does not wait already."""
    tool, given = event.get("tool"), event.get("input")
    if event.get("kind") != ACT or not isinstance(tool, str) or not isinstance(given, dict):
        return False
    return store.approvals.act(worker, tool, given) is None


def expiry(event: Mapping[str, Any]) -> float | None:
    """When a `control_request` expires, None for never."""
    said = event.get("expires_at")
    if not isinstance(said, str) or not said:
        return None
    try:
        return parse_time(said)
    except ProtocolViolation:
        return None


def _fold_events(store: Store, record: Message) -> Sequence[Change]:
    try:
        named = subjects.parse(record.subject)
        batch = EventBatch.decode(record.payload)
    except (InvalidInput, ProtocolViolation):
        return ()
    worker = named.sender
    if named.kind != "events" or not batch.events:
        return ()
    rows = rows_of(worker, batch, record.sequence, record.timestamp)
    if batch.run:
        known = store.events.known(worker, batch.run, batch.first, len(rows))
        rows = [row for row in rows if row.number not in known] if known else rows
    if not rows:
        return ()
    store.events.insert(rows)
    about = [row.request for row in rows if row.request and _is_of_approval(store, batch, row)]
    # One change for the whole record: a worker may report a thousand events a second.
    return (Change("event", rows[-1].id, about[0] if about else "", worker, row=tuple(rows)),)


def _is_of_approval(store: Store, batch: EventBatch, row: EventRow) -> bool:
    """Whether a stored event makes or settles an approval; after this it has."""
    return fold_approval(store, row.id, row.worker, row.run, batch.events[row.id % PLACES])


def rows_of(worker: str, batch: EventBatch, sequence: int, at: float) -> list[EventRow]:
    """The rows of a record."""
    rows = []
    for place, event in enumerate(batch.events):
        made = event_id(sequence, place)
        number = batch.first + place if batch.run else made
        rows.append(_row(made, worker, batch.run, number, event, at))
    return rows


def _row(
    made: int, worker: str, run: str, number: int, event: Mapping[str, Any], at: float
) -> EventRow:
    kind = event.get("type")
    if not isinstance(kind, str) or kind not in (_REPORTED if run else _KINDS):
        kind = EventKind.RAW.value
    used = kind == EventKind.USAGE
    return EventRow(
        id=made,
        worker=worker,
        run=run,
        number=number,
        kind=kind,
        task=_label(event, "task"),
        message=_label(event, "message"),
        request=request_of(event),
        tokens_in=_count(event, "input_tokens") if used else 0,
        tokens_out=_count(event, "output_tokens") if used else 0,
        cost=_cost(event) if used else 0.0,
        event=strict_json.dumps(event).decode(),
        at=at,
    )


def _label(event: Mapping[str, Any], name: str) -> str:
    value = event.get(name)
    return value if isinstance(value, str) and len(value) <= MAX_LABEL else ""


def _count(event: Mapping[str, Any], name: str) -> int:
    value = event.get(name)
    if type(value) is not int:
        return 0
    return max(0, min(value, MOST_TOKENS))


def _cost(event: Mapping[str, Any]) -> float:
    value = event.get("cost")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    cost = float(value) if abs(value) < MOST_COST else MOST_COST
    return cost if math.isfinite(cost) and cost > 0 else 0.0


def _always(_store: Store, _record: Message, _before: float) -> bool:
    """Once a snapshot holds the rows, the record is over: many events come, and the rows are what is asked for."""
    return True


RULES: dict[str, tuple[Rule, ...]] = {"EVENTS": (_fold_events,)}

OVER: dict[str, Over] = {"EVENTS": Over(_always)}
