"""What all organisations of a post room share: the bus, the walls, the HTTP front.

Each organisation is a `House` in it, with accounts, log, projection and workers of its own.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from postroom.bus.host import BusHost
from postroom.control.crew import hire
from postroom.control.front import Front
from postroom.control.listen import WorkerDialer
from postroom.gateway.audit import AuditLog
from postroom.gateway.port import AuditSink, GatewayProvider
from postroom.gateway.relay import RelayGateway
from postroom.sandbox.canary import Roost
from postroom.sandbox.policy import folder_for_sockets
from postroom.sandbox.selftest import Canaries
from postroom.settings import Settings


@dataclass(frozen=True, slots=True)
class Building:
    """The shared parts, open.

    Attributes:
        settings: of the whole post room.
        host: the bus's server.
        front: where HTTP requests arrive.
        gateway: Wall 1.
        audit: the log of what passed the walls; `run` is a task of the building's crew.
        canaries: what each sandbox is tried against.
        shut_down: ends the post room.
    """

    settings: Settings
    host: BusHost
    front: Front
    gateway: GatewayProvider
    audit: AuditLog
    canaries: Canaries
    shut_down: Callable[[], None]


async def open_building(
    settings: Settings,
    host: BusHost,
    front: Front,
    shut_down: Callable[[], None],
    stack: AsyncExitStack,
) -> Building:
    """Open the shared parts; `stack` closes them.

    Raises:
        StateUnwritable: the audit log cannot be written.
    """
    audit = AuditLog(
        settings.audit_file,
        file_bytes=settings.audit_file_bytes,
        files=settings.audit_files,
        lossy=settings.audit_lossy,
    )
    stack.callback(audit.close)
    crew = await stack.enter_async_context(hire())
    crew.start(audit.run(), "audit")
    gateway = _open_gateway(host, front, audit, stack)
    stack.push_async_callback(gateway.close)
    roost = await stack.enter_async_context(Roost(outward=False))
    return Building(settings, host, front, gateway, audit, roost.canaries(""), shut_down)


def _open_gateway(
    host: BusHost, front: Front, audit: AuditSink, stack: AsyncExitStack
) -> RelayGateway:
    folder = stack.enter_context(
        tempfile.TemporaryDirectory(
            prefix="postroom-", dir=folder_for_sockets(), ignore_cleanup_errors=True
        )
    )

    async def dial_nats(_uid: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        where = urlsplit(host.address.servers[0])
        return await asyncio.open_connection(where.hostname, where.port)

    upstreams = {"nats": dial_nats, "http": WorkerDialer(front).dial}
    return RelayGateway(Path(folder), upstreams, audit)
