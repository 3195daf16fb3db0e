"""Says to a person that the audit log cannot be written, once for each time that it cannot."""

from __future__ import annotations

import asyncio

from postroom.bus.port import MessageBusProvider
from postroom.control.audit.patience import insist
from postroom.folding.alerts import Alert, raise_alert
from postroom.gateway.audit import AuditLog

KIND = "audit-unwritable"

PAUSE = 60.0
"""Seconds between two alerts: a disk that is full to the last byte takes a line now and then."""


async def watch(log: AuditLog, bus: MessageBusProvider) -> None:
    """Raise alerts until cancelled; one that the bus cannot take waits until it can."""
    while True:
        while (trouble := log.trouble) is None:
            await asyncio.wait({log.turn()})
        fate = "traffic goes on unrecorded" if log.lossy else "nothing passes the gateway"
        text = f"the audit log cannot be written, {fate}: {trouble.reason}"
        await insist(lambda said=text: raise_alert(bus, Alert(said, KIND)), "an alert")
        while log.trouble is not None:
            await asyncio.wait({log.turn()})
        await asyncio.sleep(PAUSE)
