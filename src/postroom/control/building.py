"""What all organisations of a post room share: the bus, the walls, the HTTP front.

Each organisation is a `House` in it, with accounts, log, projection and workers of its own.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from urllib.parse import urlsplit

from postroom.bus.host import BusHost
from postroom.control.front import Front
from postroom.control.listen import WorkerDialer
from postroom.gateway.audit import AuditLog
from postroom.gateway.credentials import Credentials
from postroom.gateway.http.control import ControlPassage
from postroom.gateway.http.egress import EgressPassage
from postroom.gateway.outbound import OutboundPolicy, client_context
from postroom.gateway.port import GatewayProvider
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
        credentials: what the gateway adds to workers' requests.
        canaries: what each sandbox is tried against.
        shut_down: ends the post room.
    """

    settings: Settings
    host: BusHost
    front: Front
    gateway: GatewayProvider
    credentials: Credentials
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
        StateUnwritable: the audit log cannot be written, or the credentials cannot be read.
        InvalidInput: the settings of egress are malformed.
        EnvironmentFault: the certificates for egress cannot be read.
    """
    credentials = Credentials(settings.credentials_file)
    egress = open_egress(settings, credentials)
    gateway = _open_gateway(settings, host, front, egress, stack)
    stack.push_async_callback(gateway.close)
    roost = await stack.enter_async_context(Roost(outward=False))
    return Building(settings, host, front, gateway, credentials, roost.canaries(""), shut_down)


def _open_gateway(
    settings: Settings,
    host: BusHost,
    front: Front,
    egress: EgressPassage,
    stack: AsyncExitStack,
) -> RelayGateway:
    folder = stack.enter_context(
        tempfile.TemporaryDirectory(
            prefix="postroom-", dir=folder_for_sockets(), ignore_cleanup_errors=True
        )
    )
    audit = AuditLog(settings.audit_file)
    stack.callback(audit.close)

    async def dial_nats(_uid: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        where = urlsplit(host.address.servers[0])
        return await asyncio.open_connection(where.hostname, where.port)

    passages = {"http": ControlPassage(WorkerDialer(front).dial), "egress": egress}
    return RelayGateway(Path(folder), {"nats": dial_nats}, audit, passages=passages)


def open_egress(settings: Settings, credentials: Credentials) -> EgressPassage:
    """The passage to the outside, as the operator has set it up.

    Raises:
        InvalidInput: a private place is malformed.
        EnvironmentFault: the further certificates cannot be read.
    """
    policy = OutboundPolicy.parse(settings.egress_private)
    # The system's certificates take a moment to load, and most post rooms need none.
    tls = cache(partial(client_context, settings.egress_ca))
    if settings.egress_ca is not None:
        tls()
    return EgressPassage(policy, credentials, tls)
