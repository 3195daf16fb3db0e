"""One connection through a door: whose it is, and how its records are made."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from postroom.gateway.cause import Cause
from postroom.gateway.plumbing import Plumbing
from postroom.gateway.port import AuditSink, DoorSpec
from postroom.gateway.rate_limit import RateLimit
from postroom.protocol.audit import PLUMBING, AuditRecord
from postroom_a2a.times import format_time


@dataclass(slots=True)
class GatewayConnection:
    """One connection, from its preface to its end.

    Attributes:
        spec: the door that it came through.
        connection: name that its records share.
        protocol: as in `AuditRecord`; "" until the preface has named it.
        cause: what the worker is at, as its own records claim; shared by the connections of a door.
        offend: counts a violation of the worker, for a reason: alert, and cut-off after too many.
        warn: tells that the worker is held back, for a reason: an alert, and nothing else.
        rate_limit: what the worker may put through; shared by the connections of a door.
        passed: bytes that passed so far, both ways, for the record of the end; its proxy counts them.
        plumbing: what passed of it and is in no line yet.
    """

    spec: DoorSpec
    connection: str
    protocol: str
    audit: AuditSink
    cause: Cause
    offend: Callable[[str], None]
    warn: Callable[[str], None]
    rate_limit: RateLimit
    passed: int = 0
    clock: Callable[[], float] = field(default=time.time)
    plumbing: Plumbing = field(default_factory=Plumbing)

    def record(self, **said: Any) -> AuditRecord:
        """A record of this moment with the fields `said`."""
        return AuditRecord(
            at=format_time(self.clock()),
            org=self.spec.org,
            worker=self.spec.uid,
            connection=self.connection,
            protocol=self.protocol,
            **said,
        )

    def write(self, **said: Any) -> None:
        """Write a record now.

        Raises:
            StateUnwritable: it could not be kept, so what it tells of must not happen.
        """
        self.audit.write(self.record(**said).encode())

    def write_ending(self, reason: str) -> None:
        """Write how the connection has ended, and before it the plumbing that no line has counted."""
        if self.plumbing.frames:
            self.write(verb=PLUMBING, **self.plumbing.line())
        self.write(verb="close", size=self.passed, reason=reason)
