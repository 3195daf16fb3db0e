"""What all organisations of a post room share: the bus, the walls, the HTTP front.

Each organisation is a `House` in it, with accounts, log, projection and workers of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from postroom.audit import AuditLog
from postroom.bus.host import BusHost
from postroom.control.certificate import CertificateKeeper
from postroom.control.crew import hire
from postroom.control.endpoints import Endpoints
from postroom.control.front import Front
from postroom.control.listen import WorkerDialer
from postroom.control.outside import Outside
from postroom.gateway.credentials import Credentials
from postroom.gateway.http.control import ControlProxy
from postroom.gateway.http.egress import EgressProxy
from postroom.gateway.nats.proxy import NatsProxy
from postroom.gateway.outbound import OutboundPolicy, client_context
from postroom.gateway.port import AuditSink, GatewayProvider
from postroom.gateway.server import Gateway, Passage
from postroom.gateway.stream_proxy import StreamProxy
from postroom.identity.trust import Trust
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.sandbox.canary import Roost
from postroom.sandbox.opensandbox.remote import Remote
from postroom.sandbox.policy import folder_for_sockets
from postroom.sandbox.selftest import Canaries
from postroom.settings import Settings


class OrgAlerts:
    """Who raises the alerts of an organisation."""

    def __init__(self) -> None:
        self._raisers: dict[str, RaiseAlert] = {}

    def add(self, org: str, raiser: RaiseAlert) -> None:
        """From now on `raiser` raises those of `org`."""
        self._raisers[org] = raiser

    async def raise_alert(self, org: str, alert: Alert) -> None:
        """Raise an alert in organisation `org`, if it is open; whoever calls this has logged it."""
        if org in self._raisers:
            await self._raisers[org](alert)


@dataclass(frozen=True, slots=True)
class Building:
    """The shared parts, open.

    Attributes:
        settings: of the whole post room.
        host: the bus's server.
        front: where HTTP requests arrive.
        gateway: Wall 1.
        credentials: what the gateway adds to workers' requests.
        alerts: where the gateway's alerts go; each organisation adds itself.
        audit: the log of what passed the walls; `run` is a task of the building's crew.
        canaries: what each sandbox is tried against.
        remote: where sandboxes are that run on other machines, None for nowhere.
        shut_down: ends the post room.
    """

    settings: Settings
    host: BusHost
    front: Front
    gateway: GatewayProvider
    credentials: Credentials
    alerts: OrgAlerts
    audit: AuditLog
    canaries: Canaries
    remote: Remote | None
    shut_down: Callable[[], None]


async def open_building(
    settings: Settings,
    host: BusHost,
    front: Front,
    trust: Trust,
    shut_down: Callable[[], None],
    stack: AsyncExitStack,
    *,
    endpoints: Endpoints,
    certificate: CertificateKeeper | None,
) -> Building:
    """Open the shared parts; `stack` closes them.

    Raises:
        PortTaken: the gateway cannot listen for sandboxes of other machines.
        StateUnwritable: the audit log cannot be written, or the credentials cannot be read.
        InvalidInput: the settings of egress, or of sandboxes elsewhere, are malformed.
        EnvironmentFault: the certificates for egress cannot be read.
    """
    alerts = OrgAlerts()
    audit = AuditLog(
        settings.audit_file,
        file_bytes=settings.audit_file_bytes,
        files=settings.audit_files,
        lossy=settings.audit_lossy,
    )
    stack.callback(audit.close)
    crew = await stack.enter_async_context(hire())
    crew.start(audit.run(), "audit")
    credentials = Credentials(settings.credentials_file)
    egress = open_egress(settings, credentials)
    gateway = _open_gateway(settings, host, front, trust, alerts, audit, egress, stack)
    stack.push_async_callback(gateway.close)
    listener, remote = None, None
    if certificate is not None:
        outside = Outside(endpoints, certificate)
        listener = outside.listen(gateway)
        if listener is not None:
            crew.start(listener.run(), "gateway for other machines")
            remote = outside.remote(settings, listener.port, trust.system_account)
    # Sandboxes of other machines are tried against an address that other machines can reach.
    roost = await stack.enter_async_context(Roost(outward=listener is not None))
    canaries = roost.canaries("")
    return Building(
        settings, host, front, gateway, credentials, alerts, audit, canaries, remote, shut_down
    )


def _open_gateway(
    settings: Settings,
    host: BusHost,
    front: Front,
    trust: Trust,
    alerts: OrgAlerts,
    audit: AuditSink,
    egress: EgressProxy,
    stack: AsyncExitStack,
) -> Gateway:
    folder = stack.enter_context(
        tempfile.TemporaryDirectory(
            prefix="postroom-", dir=folder_for_sockets(), ignore_cleanup_errors=True
        )
    )
    proxies: dict[str, Passage] = {
        "nats": NatsProxy(lambda: host.address, trust.sign_as_proxy),
        "http": StreamProxy(ControlProxy(WorkerDialer(front).dial)),
        "egress": StreamProxy(egress),
    }
    return Gateway(
        Path(folder),
        proxies,
        audit,
        alert=alerts.raise_alert,
        violations=settings.violations,
    )


def open_egress(settings: Settings, credentials: Credentials) -> EgressProxy:
    """The proxy to the outside, as the operator has set it up.

    Raises:
        InvalidInput: a private place is malformed.
        EnvironmentFault: the further certificates cannot be read.
    """
    policy = OutboundPolicy.parse(settings.egress_private)
    # The system's certificates take a moment to load, and most post rooms need none.
    tls = cache(partial(client_context, settings.egress_ca))
    if settings.egress_ca is not None:
        tls()
    return EgressProxy(policy, credentials, tls)
