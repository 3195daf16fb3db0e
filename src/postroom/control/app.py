"""The composition root of the installation: the parts that all of its organisations share.

`control.up` opens it, then `control.org` opens each organisation on it.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import secrets
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from postroom.audit import AuditLog
from postroom.bus.host import BusHost
from postroom.control.a2a.place import GrpcPlace
from postroom.control.endpoints import Endpoints
from postroom.control.http_listener import WorkerDialer
from postroom.control.in_flight import InFlight
from postroom.control.limits import Bounds, CallerLimits
from postroom.control.org_router import OrgRouter
from postroom.directory.grants import Decisions
from postroom.errors import InvalidInput
from postroom.gateway.credentials import Credentials, Refusals
from postroom.gateway.http.egress import EgressProxy
from postroom.gateway.http.session import ControlProxy
from postroom.gateway.listener import RETRY, TlsListener, bind_listener
from postroom.gateway.nats.proxy import NatsProxy
from postroom.gateway.port import DoorSpec, GatewayProvider, GatewayStatistics
from postroom.gateway.server import Gateway, Proxy
from postroom.gateway.stream_proxy import StreamProxy
from postroom.http.outbound import OutboundPolicy, client_context
from postroom.identity.pins import Pins
from postroom.identity.sealing import Sealer
from postroom.identity.trust import Trust
from postroom.mail.limits import PairBounds, PairLimits
from postroom.mail.relay import Relay
from postroom.observe.metrics import Metrics
from postroom.observe.supervision import Supervisor, supervisor
from postroom.protocol.alerts import Alert, RaiseAlert
from postroom.sandbox.canary import CanaryServer
from postroom.sandbox.opensandbox.remote import Remote
from postroom.sandbox.policy import folder_for_sockets
from postroom.sandbox.selftest import Canaries
from postroom.settings import DEFAULT_GATEWAY_PORT, Settings
from postroom.settings.keeping import parse_age
from postroom.webhooks.sender import Sender

if TYPE_CHECKING:
    from postroom.control.certificate import CertificateKeeper


@dataclass(frozen=True, slots=True)
class Installation:
    """The shared parts, open.

    Attributes:
        settings: of the installation; organisations derive theirs from them.
        credentials: secrets that the gateway adds to workers' requests.
        alerts: raises an alert in each open organisation, by its name.
        canaries: what each sandbox is tried against.
        remote: where sandboxes of other machines run, None for nowhere.
        sender: sends to the webhooks of all organisations.
        sealer: seals and opens secrets in the database.
        background: background work of no organisation; the default one has its alerts.
        in_flight: the running requests of the API.
        grpc: where A2A over gRPC is served.
        pins: the PINs of each open organisation, with the operator's uid there.
        decisions: who is let in, while it is acted on; shared, since grants cross organisations.
        relays: carry messages between the open organisations, by name.
        backing_up: held while a backup is written, in which keys and what they have signed belong together.
        pairs: how much one agent may send to another; shared, as they are.
        opened: the `control.parts.Parts` of each open organisation, for what crosses from one to another.
    """

    settings: Settings
    host: BusHost
    router: OrgRouter
    gateway: GatewayProvider
    credentials: Credentials
    alerts: dict[str, RaiseAlert]
    audit: AuditLog
    canaries: Canaries
    remote: Remote | None
    shut_down: Callable[[], None]
    sender: Sender
    sealer: Sealer
    background: Supervisor
    in_flight: InFlight = field(default_factory=InFlight)
    grpc: GrpcPlace = field(default_factory=GrpcPlace)
    pins: dict[str, tuple[Pins, str]] = field(default_factory=dict)
    decisions: Decisions = field(default_factory=Decisions)
    relays: dict[str, Relay] = field(default_factory=dict)
    pairs: PairLimits = field(default_factory=PairLimits)
    backing_up: asyncio.Lock = field(default_factory=asyncio.Lock)
    opened: dict[str, Any] = field(default_factory=dict)

    @property
    def metrics(self) -> Metrics:
        """The counters of the post room, for whoever has something to count."""
        return self.router.metrics


async def open_installation(
    settings: Settings,
    host: BusHost,
    router: OrgRouter,
    trust: Trust,
    shut_down: Callable[[], None],
    stack: AsyncExitStack,
    *,
    endpoints: Endpoints,
    certificate: CertificateKeeper | None,
) -> Installation:
    """Open the shared parts; `stack` closes them."""
    alerts: dict[str, RaiseAlert] = {}
    audit = AuditLog(
        settings.audit_file,
        file_bytes=settings.audit_file_bytes,
        files=settings.audit_files,
        keep=parse_age(settings.keep_audit).seconds,
        lossy=settings.audit_lossy,
    )
    stack.callback(audit.close)
    credentials = Credentials(settings.credentials_file)

    async def raise_alert(org: str, alert: Alert) -> None:
        if org in alerts:  # otherwise the organisation is closing, and the alert is in the log
            await alerts[org](alert)

    decisions = Decisions()
    egress = StreamProxy(open_egress(settings, credentials, Refusals(raise_alert)))
    folder = stack.enter_context(
        tempfile.TemporaryDirectory(
            prefix="postroom-", dir=folder_for_sockets(), ignore_cleanup_errors=True
        )
    )
    proxies: dict[str, Proxy] = {
        "nats": NatsProxy(lambda: host.address, trust.sign_as_proxy, lets_in=decisions.takes),
        "http": StreamProxy(ControlProxy(WorkerDialer(router).dial)),
        "egress": egress,
    }
    gateway = Gateway(
        Path(folder),
        proxies,
        audit,
        alert=raise_alert,
        violations=settings.violations,
    )
    stack.push_async_callback(gateway.close)
    listener, remote = None, None
    if certificate is not None:
        listener = _far_listener(endpoints, certificate, gateway)
    if certificate is not None and listener is not None:
        stack.push_async_callback(listener.close)
        address = endpoints.gateway_address(listener.port)
        remote = open_remote(settings, address, certificate.ca, trust.system_account)
    # After what it works on: it ends before that is closed.
    background = await stack.enter_async_context(supervisor())
    background.supervise("audit", audit.run)
    if listener is not None:
        background.supervise("gateway", listener.run, retry=RETRY)
    # Sandboxes on other machines need canaries at an address that those machines can reach.
    canary_server = await stack.enter_async_context(CanaryServer(outward=listener is not None))
    canaries = canary_server.canaries("")
    in_flight = InFlight(limits=CallerLimits(Bounds.of(settings)))
    return Installation(
        settings,
        host,
        router,
        gateway,
        credentials,
        alerts,
        audit,
        canaries,
        remote,
        shut_down,
        open_sender(settings),
        Sealer(settings.sealing_key_file),
        background,
        in_flight,
        pairs=PairLimits(PairBounds.of(settings), note=in_flight.limits.note),
        decisions=decisions,
    )


def open_egress(settings: Settings, credentials: Credentials, refusals: Refusals) -> EgressProxy:
    """The proxy for workers' requests to the outside, as the operator has set it up."""
    policy = OutboundPolicy.parse(settings.egress_private)
    # The system's certificates take a moment to load, and most post rooms need none.
    tls = cache(partial(client_context, settings.egress_ca))
    if settings.egress_ca is not None:
        tls()
    return EgressProxy(policy, credentials, tls, refusals)


def open_sender(settings: Settings) -> Sender:
    """What sends to webhooks, under the same policy as workers' requests to the outside."""
    policy = OutboundPolicy.parse(settings.egress_private)
    return Sender(policy, cache(partial(client_context, settings.egress_ca)))


class OrgGateway(GatewayProvider):
    """The gateway as one organisation uses it: requests through its workers' doors reach its own API."""

    def __init__(self, gateway: GatewayProvider, router: OrgRouter, org: str) -> None:
        self._gateway = gateway
        self._router = router
        self._org = org
        self._doors: set[str] = set()

    async def open_door(self, spec: DoorSpec) -> Path:
        # First, because the worker may call as soon as its door is open.
        self._router.admit(spec.uid, self._org)
        self._doors.add(spec.uid)
        return await self._gateway.open_door(spec)

    async def close_door(self, uid: str) -> None:
        await self._gateway.close_door(uid)
        self._router.dismiss(uid)
        self._doors.discard(uid)

    async def close(self) -> None:
        """Close the doors of this organisation; those of others stay."""
        for uid in list(self._doors):
            await self.close_door(uid)

    def statistics(self) -> GatewayStatistics:
        """See `GatewayProvider.statistics`; the counts are of the whole gateway."""
        return self._gateway.statistics()


# Sandboxes on other machines.


def _far_listener(
    endpoints: Endpoints, certificate: CertificateKeeper, gateway: Gateway
) -> TlsListener | None:
    """The gateway's bound listener for sandboxes on other machines; None if the settings name none."""
    wanted = endpoints.gateway
    if wanted is None:
        return None
    port = DEFAULT_GATEWAY_PORT if wanted.port is None else wanted.port
    return TlsListener(bind_listener(wanted.address, port), certificate.context, gateway.admit)


def open_remote(settings: Settings, gateway: str, ca: str, operator: str) -> Remote | None:
    """The OpenSandbox server of `settings` for workers; None without one.

    Args:
        gateway: `host:port` at which a sandbox finds the gateway.
        ca: path of the authority that sandboxes must trust for that, "" for the ones of their system.
        operator: public key of this post room, which tells its sandboxes from others'.
    """
    if not settings.opensandbox_url:
        return None
    _check_url(settings.opensandbox_url)
    return Remote(
        url=settings.opensandbox_url.rstrip("/"),
        key=_key(settings),
        image=settings.opensandbox_image,
        python=settings.opensandbox_python,
        gateway=gateway,
        gateway_ca=Path(ca).read_text(encoding="utf-8") if ca else "",
        room=hashlib.sha256(operator.encode()).hexdigest()[:32],
        run=secrets.token_hex(8),
    )


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username:
        raise InvalidInput(
            "POSTROOM_OPENSANDBOX_URL is not the URL of a server", remedy="e.g. https://host:8080"
        )
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise InvalidInput(
            "POSTROOM_OPENSANDBOX_URL leads over the network without TLS: workers' credentials go there",
            remedy="give the server a certificate, and name it with https://",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _key(settings: Settings) -> str:
    if settings.opensandbox_key or settings.opensandbox_key_file is None:
        return settings.opensandbox_key
    try:
        return settings.opensandbox_key_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise InvalidInput(
            f"the key of OpenSandbox cannot be read from {settings.opensandbox_key_file}: {error.strerror}"
        ) from error
