"""Alerts that the audit log cannot be written, one for each time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from postroom.audit import AuditLog
from postroom.observe.supervision import well
from postroom.protocol.alerts import Alert, RaiseAlert

KIND = "audit-unwritable"

PAUSE = 60.0
"""Seconds between two alerts: a disk that is full to the last byte takes a line now and then."""


def trouble_of(log: AuditLog) -> str:
    """Why `log` cannot be written now, "" if it can."""
    if log.trouble is None:
        return ""
    fate = "traffic goes on unrecorded" if log.lossy else "nothing passes the gateway"
    return f"the audit log cannot be written, {fate}: {log.trouble.reason}"


class Alarm:
    """Raises the alerts; one that the bus cannot take waits until it can.

    Args:
        tell: raises and ends alerts; raises an error where that is to be tried again.
        space: raises `StateUnwritable` while the disk of the bus is full: writing then would break its stream.
    """

    def __init__(self, log: AuditLog, tell: RaiseAlert, space: Callable[[], None]) -> None:
        self._log = log
        self._tell = tell
        self._space = space
        self._untold = ""
        self._stands = True  # an alert may be left from an earlier process

    async def run(self) -> None:
        """Watch the log until cancelled."""
        while True:
            if not self._untold:
                await self._over()
                while not (text := trouble_of(self._log)):
                    await asyncio.wait({self._log.turn()})
                self._untold = text
            self._space()
            await self._tell(Alert(KIND, self._untold))
            self._untold, self._stands = "", True
            well()
            while self._log.trouble is not None:
                await asyncio.wait({self._log.turn()})
            await self._over()
            await asyncio.sleep(PAUSE)

    async def _over(self) -> None:
        if self._stands and self._log.trouble is None:
            await self._tell(Alert(KIND, ""))
            self._stands = False
        well()
