"""What the turns of one worker have in common: its rules, its events, its approvals, its budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from postroom.protocol.alerts import RaiseAlert
from postroom.protocol.events import EventKind, cut
from postroom.sidecar.status import StatusReporter
from postroom.sidecar.turns.approvals import Approvals
from postroom.sidecar.turns.base import Base
from postroom.sidecar.turns.budget import Budget
from postroom.sidecar.turns.steering import Steering
from postroom.sidecar.turns.turn import Turn


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a turn.

    Attributes:
        stall_after: seconds without an event after which it counts as stalled, 0 for never.
        turn_limit: seconds that it may take, without those in which it waits for people; 0 for no limit.
        grace: seconds for the agent to heed an interrupt before it is killed.
    """

    stall_after: float = 0.0
    turn_limit: float = 0.0
    grace: float = 5.0


@dataclass(frozen=True, slots=True)
class Desk:
    """Attributes:
    record: takes an event for the control plane, at once.
    """

    approvals: Approvals
    steering: Steering
    budget: Budget
    base: Base
    limits: Limits
    status: StatusReporter
    raise_alert: RaiseAlert
    record: Callable[[dict[str, Any]], None]

    def report(
        self, kind: EventKind, fields: Mapping[str, Any], raw: str = "", turn: Turn | None = None
    ) -> None:
        """Report an event of the agent."""
        event = {"type": kind.value, "at": time.time(), **fields}
        event |= turn.about if turn else {}
        self.record(event | ({"raw": cut(raw)} if raw else {}))
