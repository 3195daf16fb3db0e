"""Opens what one organisation does with the audit log."""

from __future__ import annotations

from contextlib import AsyncExitStack

from postroom.audit import alarm
from postroom.audit.connections import Connections
from postroom.audit.copying import AuditCopy
from postroom.audit.cursor import Cursor
from postroom.audit.outsiders import Outsiders
from postroom.audit.tap import StoredTap
from postroom.audit.view import AuditView
from postroom.bus.nats.bus import NatsBus
from postroom.control.building import Building
from postroom.control.mailroom import Mailroom
from postroom.identity.trust import Trust
from postroom.protocol.ids import CONTROL_PLANE
from postroom.settings import Settings


async def open_audit(
    building: Building, settings: Settings, trust: Trust, room: Mailroom, stack: AsyncExitStack
) -> AuditView:
    """Copy, alarm and the server's own side begin to work for `room`; returns how the log is read.

    Raises:
        PostroomError: the bus could not be reached.
    """
    log = building.audit
    copy = AuditCopy(
        log, room.bus, trust.org, Cursor(settings.home / "audit-copy.json"), room.space
    )
    room.crew.start(copy.run(), "audit-copy")
    room.crew.start(
        alarm.watch(log, room.bus, trust.org, room.space, room.alerts.end), "audit-alarm"
    )
    outsiders = Outsiders(room.directory)
    await outsiders.load()
    tap = StoredTap(
        room.admin, log, trust.org, outsiders, Cursor(settings.home / "audit-streams.json")
    )
    room.crew.start(tap.run(), "audit-streams")
    credential = trust.system_credential()
    system = await NatsBus.connect(
        building.host.address,
        uid=CONTROL_PLANE,
        jwt=lambda: credential.jwt,
        sign=credential.sign,
        name="postroom-audit",
    )
    stack.push_async_callback(system.close)
    connections = Connections(system, log, trust, outsiders)
    await connections.open()
    stack.push_async_callback(connections.close)
    view = AuditView(log, trust.org)
    stack.callback(view.close)
    return view
