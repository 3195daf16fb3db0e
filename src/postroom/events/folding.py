"""Approvals in the fold of events. The log's order alone decides which answer is the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.errors import ProtocolViolation
from postroom.protocol.approvals import counts, request_of
from postroom.protocol.events import EventKind
from postroom.store.database import Store
from postroom_a2a.times import parse_time


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
    if kind == EventKind.CONTROL_REQUEST and run:
        return store.approvals.ask(event_id, worker, request, expiry(event))
    if kind == EventKind.CONTROL_RESPONSE and counts(event, reported=bool(run)):
        return store.approvals.settle(event_id, worker, request)
    return False


def expiry(event: Mapping[str, Any]) -> float | None:
    """When a `control_request` expires, None for never."""
    said = event.get("expires_at")
    if not isinstance(said, str) or not said:
        return None
    try:
        return parse_time(said)
    except ProtocolViolation:
        return None
