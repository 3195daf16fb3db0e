"""One connection through a door: its worker, and the making of its audit records."""

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
        connection: name that its records share.
        protocol: as in `AuditRecord`; "" until the preface has named it.
        cause: what the worker works on; shared by the connections of a door.
        offend: counts a violation for a reason: an alert, and cut-off after too many.
        warn: raises an alert that the gateway slows the worker down, and does nothing else.
        rate_limit: shared by the connections of a door.
        passed: bytes both ways, for the record of the end; the proxy counts them.
        plumbing: frames that passed and that no line has counted yet.
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
            StateUnwritable: the log cannot keep the record, so what it describes must not happen.
        """
        self.audit.write(self.record(**said).encode())

    def write_ending(self, reason: str) -> None:
        """Write the plumbing that no line has counted, then how the connection has ended."""
        if self.plumbing.frames:
            self.write(verb=PLUMBING, **self.plumbing.line())
        self.write(verb="close", size=self.passed, reason=reason)
