"""Where a post room is reached from other machines: a scheme, a host and a port. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from postroom.errors import InvalidInput
from postroom.protocol.hosts import authority, is_address, split_authority

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """One origin (RFC 6454), its host in canonical spelling."""

    scheme: str
    host: str
    port: int

    @property
    def url(self) -> str:
        """As a URL, without a slash at the end."""
        return f"{self.scheme}://{authority(self.host, self.port, PORTS[self.scheme])}"

    @property
    def authorities(self) -> frozenset[str]:
        """What clients send as `Host`; most of them leave out the scheme's own port."""
        return frozenset(authority(self.host, self.port, left_out) for left_out in (0, self._usual))

    @property
    def _usual(self) -> int:
        return PORTS[self.scheme]

    @property
    def near(self) -> bool:
        """Whether it stays on this machine."""
        if is_address(self.host):
            return ipaddress.ip_address(self.host).is_loopback
        return self.host == "localhost"


def origin_of(text: str) -> Origin:
    """The origin that a URL names.

    Raises:
        InvalidInput: it is not a URL of a post room, has a path, or would send keys without TLS.
    """
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not a URL", remedy="e.g. https://box.example") from error
    if parts.scheme not in PORTS or not parts.netloc:
        raise InvalidInput(
            f"{text!r} is not the URL of a post room", remedy="e.g. https://box.example:4281"
        )
    if parts.path not in {"", "/"}:
        raise InvalidInput(
            f"{text!r} has the path {parts.path}, and a post room has a host name of its own",
            remedy=f"{parts.scheme}://{parts.netloc}, or another name that leads to it alone",
        )
    if parts.query or parts.fragment:
        raise InvalidInput(f"{text!r} has more than a host and a port", remedy="leave it out")
    host, port = split_authority(parts.netloc, PORTS[parts.scheme])
    origin = Origin(parts.scheme, host, port)
    if parts.scheme == "http" and not origin.near:
        raise InvalidInput(
            f"{text!r} would send keys and messages without TLS", remedy=f"https://{parts.netloc}"
        )
    return origin
