"""Alerts that the audit log cannot be written, one for each time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from postroom.audit import AuditLog
from postroom.audit.retrying import retry_until_done
from postroom.bus.port import MessageBusProvider
from postroom.projection.submit import append_alert
from postroom.protocol.alerts import Alert

KIND = "audit-unwritable"

PAUSE = 60.0
"""Seconds between two alerts: a disk that is full to the last byte takes a line now and then."""


def trouble_of(log: AuditLog) -> str:
    """Why `log` cannot be written now, "" if it can."""
    if log.trouble is None:
        return ""
    fate = "traffic goes on unrecorded" if log.lossy else "nothing passes the gateway"
    return f"the audit log cannot be written, {fate}: {log.trouble.reason}"


async def watch(
    log: AuditLog,
    bus: MessageBusProvider,
    org: str,
    space: Callable[[], None],
    over: Callable[[str, str], Awaitable[None]],
) -> None:
    """Raise alerts until cancelled; an alert that the bus cannot take waits until it can.

    Args:
        space: raises `StateUnwritable` while the disk of the bus is full: writing then would break its stream.
        over: ends alerts, given why and their kind.
    """
    while True:
        if log.trouble is None:  # an alert may be left from an earlier process
            await over("the audit log can be written again", KIND)
        while not (text := trouble_of(log)):
            await asyncio.wait({log.turn()})

        async def tell(said: str = text) -> None:
            space()
            await append_alert(bus, Alert(KIND, said))

        await retry_until_done(tell, "an alert", org)
        while log.trouble is not None:
            await asyncio.wait({log.turn()})
        await over("the audit log can be written again", KIND)
        await asyncio.sleep(PAUSE)
