"""The addresses of a post room, and which of them have TLS: read from the settings before anything is opened.

nats-server has one listener for all its clients. It is on loopback, unless the settings name an address that others
can reach: then it is there and nowhere else, with TLS for the control plane and the gateway, too. The HTTP API has a
listener for each: loopback for the commands of this machine, and the named address.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from postroom.errors import InvalidInput
from postroom.protocol.hosts import canonical_name
from postroom.protocol.origins import PORTS, Origin, origin_of
from postroom.settings import Settings

if TYPE_CHECKING:
    from postroom.identity.certificates import Certificate

_LISTEN = re.compile(r"(\[(?P<six>[^][]+)\]|(?P<name>[^][:]+))(:(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class OutwardAddress:
    """An address that others can reach.

    Attributes:
        name: as it was given: an address, or a host name.
        address: the IP address of `name`.
        port: to listen on; None for the usual one.
    """

    name: str
    address: str
    port: int | None

    @property
    def everywhere(self) -> bool:
        """Whether it stands for all addresses of this machine."""
        return ipaddress.ip_address(self.address).is_unspecified

    @property
    def near(self) -> bool:
        """Whether this machine alone can reach it."""
        return ipaddress.ip_address(self.address).is_loopback


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of a post room.

    Attributes:
        outward: address for others, None for none.
        gateway: address for sandboxes on other machines, None for none; always with TLS.
        gateway_name: name and port by which they find it, "" for `gateway`'s own.
        grpc: address of A2A over gRPC, None for none.
        grpc_name: name and port by which clients of other machines find it, "" for `grpc`'s own.
        public: where others reach the API through a proxy, a balancer or a tunnel.
    """

    loopback: str
    loopback_tls: bool
    outward: OutwardAddress | None
    gateway: OutwardAddress | None = None
    gateway_name: str = ""
    public: tuple[Origin, ...] = ()
    grpc: OutwardAddress | None = None
    grpc_name: str = ""

    @property
    def encrypted(self) -> bool:
        """Whether any listener for clients has TLS; then nats-server has it."""
        return self.loopback_tls or self.outward is not None

    @property
    def certified(self) -> bool:
        """Whether a certificate is needed."""
        return self.encrypted or self.gateway is not None or self.grpc_tls

    @property
    def grpc_tls(self) -> bool:
        """Whether A2A over gRPC has TLS."""
        return self.grpc is not None and (self.loopback_tls or not self.grpc.near)

    @property
    def gateway_host(self) -> str:
        """The name that sandboxes on other machines dial, "" for none."""
        if self.gateway is None:
            return ""
        return _split(self.gateway_name)[0] if self.gateway_name else self.gateway.name

    def gateway_address(self, port: int) -> str:
        """`host:port` that sandboxes on other machines dial for a listener on `port`."""
        named = self.gateway_name
        far = _split(named)[1] if named else None
        return f"{bracketed(self.gateway_host)}:{port if far is None else far}"

    def grpc_addresses(
        self, port: int, certificate: Certificate | None
    ) -> tuple[str, tuple[str, ...]]:
        """`host:port` of A2A over gRPC for clients of this machine ("" for none), and those for others."""
        listening = self.grpc
        if listening is None:
            return "", ()
        near = (
            self.loopback if listening.everywhere else listening.address if listening.near else ""
        )
        far = () if listening.near else (listening.name,)
        if listening.everywhere and certificate is not None:
            found = (n for n in certificate.names if not _is_near(n) and "*" not in n)
            far = tuple(found)[:1]
        if self.grpc_name:
            name, named = _split(self.grpc_name)
            far, port_far = (name,), port if named is None else named
        else:
            port_far = port
        shown = near or listening.name
        return f"{bracketed(shown)}:{port}", tuple(f"{bracketed(n)}:{port_far}" for n in far)

    @property
    def nats_host(self) -> str:
        """The address of nats-server's listener."""
        return self.loopback if self.outward is None else self.outward.address

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the certificate has to cover."""
        names = [self.loopback] if self.loopback_tls else []
        if self.outward is not None and not self.outward.everywhere:
            names.append(self.outward.name)
        if self.gateway is not None and self.gateway_host not in names:
            names.append(self.gateway_host)
        grpc = self.grpc
        if grpc is not None and not (grpc.near or grpc.everywhere or grpc.name in names):
            names.append(grpc.name)
        return tuple(names)

    def nats_name(self, certificate: Certificate) -> str:
        """The name under which the control plane checks the certificate of nats-server."""
        if self.outward is not None and not self.outward.everywhere:
            return self.outward.name
        plain = [name for name in certificate.names if not name.startswith("*")]
        if not plain:
            raise InvalidInput("the certificate covers only wildcard names")
        return self.loopback if certificate.covers(self.loopback) else plain[0]

    def public_names(self, certificate: Certificate) -> tuple[str, ...]:
        """The known names by which others reach the post room; none if they cannot."""
        if self.outward is None:
            return ()
        if not self.outward.everywhere:
            return (self.outward.name,)
        far = (name for name in certificate.names if not _is_near(name) and "*" not in name)
        return tuple(far) or (self.outward.name,)

    def hosts(
        self, loopback_port: int, outward_port: int, names: tuple[str, ...]
    ) -> frozenset[str]:
        """Allowed values of the Host header; see `pages`."""
        pages = self.pages(loopback_port, outward_port, names)
        return frozenset(page.partition("://")[2] for page in pages)

    def pages(
        self, loopback_port: int, outward_port: int, names: tuple[str, ...]
    ) -> frozenset[str]:
        """Allowed values of the Origin header: the API's own.

        Args:
            loopback_port: of the API on loopback.
            outward_port: of the API on the other address, 0 for none.
            names: that the certificate covers.
        """
        own = ("127.0.0.1", "localhost", "::1")
        found = _origins(own, loopback_port, tls=self.loopback_tls)
        if self.outward is not None:
            named = names if self.outward.everywhere else (*names, self.outward.name)
            found |= _origins(named, outward_port, tls=True)
        for origin in self.public:
            found |= {f"{origin.scheme}://{each}" for each in origin.authorities}
        return frozenset(found)


def plan(settings: Settings) -> Endpoints:
    """The addresses that `settings` ask for."""
    if len(settings.listen) > 1:
        raise InvalidInput(
            "nats-server listens on one address, and several are named",
            remedy="--listen 0.0.0.0 (or ::) for all of them",
        )
    outward = _outward(settings.listen[0]) if settings.listen else None
    gateway = _outward(settings.gateway_listen) if settings.gateway_listen else None
    if gateway is not None and gateway.everywhere and not settings.gateway_address:
        raise InvalidInput(
            f"sandboxes cannot dial {gateway.name}",
            remedy="say how they find the gateway: POSTROOM_GATEWAY_ADDRESS=NAME[:PORT]",
        )
    always = settings.tls == "always"
    public = tuple(map(origin_of, settings.public_urls))
    grpc = _outward(settings.grpc_listen) if settings.grpc_listen else None
    if settings.grpc_address:
        _split(settings.grpc_address)
    return Endpoints(
        settings.host,
        always,
        outward,
        gateway,
        settings.gateway_address,
        public,
        grpc,
        settings.grpc_address,
    )


def bracketed(name: str) -> str:
    """`name` in the form that stands before a port in a URL."""
    return f"[{name}]" if ":" in name else name


def _origins(names: Iterable[str], port: int, *, tls: bool) -> set[str]:
    """The forms in which clients name `port` of these names; they leave out the scheme's own port."""
    scheme = "https" if tls else "http"
    plain = {f"{scheme}://{bracketed(name).lower()}" for name in names}
    found = {f"{name}:{port}" for name in plain}
    return found | plain if port == PORTS[scheme] else found


def _is_near(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def _outward(text: str) -> OutwardAddress:
    name, port = _split(text)
    name = canonical_name(name)
    try:
        return OutwardAddress(name, str(ipaddress.ip_address(name)), port)
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise InvalidInput(
            f"{name} has no address: {error.strerror}", remedy="name an IP address"
        ) from error
    return OutwardAddress(name, str(found[0][4][0]), port)


def _split(text: str) -> tuple[str, int | None]:
    """`ADDR`, `ADDR:PORT`, `[ADDR]:PORT` or a bare IPv6 address, split; without a port it is None."""
    if text.count(":") > 1 and not text.startswith("["):
        return text, None
    found = _LISTEN.fullmatch(text)
    if found is None or int(found["port"] or 0) > 65535:
        raise InvalidInput(
            f"{text!r} is not ADDR[:PORT]", remedy="e.g. 192.0.2.1:4281 or [2001:db8::1]:4281"
        )
    port = found["port"]
    return found["six"] or found["name"], None if port is None else int(port)
