"""The audit log as the visits of a door see it: a fault is told once, and what follows from it is chosen here."""

from __future__ import annotations

from collections.abc import Callable

from postroom.errors import StateUnwritable
from postroom.gateway.port import AuditSink

UNWRITABLE = "audit-unwritable"


class Keeping:
    """An `AuditSink` over another.

    Args:
        sink: keeps the records.
        alert: told the kind and the text of an alert, once for each time that the sink fails anew.
        lossy: go on without the record.
    """

    def __init__(
        self, sink: AuditSink, alert: Callable[[str, str], None], *, lossy: bool = False
    ) -> None:
        self._sink = sink
        self._alert = alert
        self._lossy = lossy
        self._failing = False

    def write(self, lines: bytes) -> None:
        """See `AuditSink.write`."""
        try:
            self._sink.write(lines)
            self._failing = False
        except StateUnwritable as error:
            if not self._failing:
                self._failing = True
                what = "goes on UNRECORDED" if self._lossy else "is stopped"
                self._alert(UNWRITABLE, f"traffic of a worker {what}: {error}")
            if not self._lossy:
                raise
