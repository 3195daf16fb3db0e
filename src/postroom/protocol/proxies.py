"""Whose word on a client's address is taken: that of named proxies, and of nobody else. Pure.

Each proxy appends the address that it was called from, so the list is read from its end: what stands before the first
address that is no proxy of ours was said by a stranger.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from postroom.errors import Forbidden, InvalidInput

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_FORWARDED = re.compile(r'(?i)\s*for\s*=\s*("[^"]*"|[^";,\s]+)\s*')
_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9.]+)(:[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Caller:
    """Where a request comes from; `scheme` "" if no proxy has said it."""

    address: str
    scheme: str = ""


@dataclass(frozen=True, slots=True)
class Proxies:
    """The networks of the proxies in front of a listener."""

    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> Proxies:
        """Those that settings name; raises InvalidInput."""
        return cls(tuple(map(parse_network, texts)))

    def caller(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """The client behind a connection from `peer`, by the headers of its request (names in lower case).

        Raises:
            Forbidden: two headers that name the client say different things, so one was not written by the proxy.
        """
        if not self.networks or not self._ours(_parsed(peer)):
            return Caller(peer)
        said: dict[bytes, list[str]] = {}
        for name, value in headers:
            if name in _NAMES:
                said.setdefault(name, []).append(value.decode("latin-1"))
        found = set()
        if b"x-forwarded-for" in said:
            found.add(self._nearest(peer, _elements(said[b"x-forwarded-for"])))
        if b"forwarded" in said:
            found.add(self._nearest(peer, _for(said[b"forwarded"])))
        if len(found) > 1:
            raise Forbidden("X-Forwarded-For and Forwarded name different clients")
        scheme = (_elements(said.get(b"x-forwarded-proto", [])) or [""])[-1].strip().lower()
        return Caller(found.pop() if found else peer, scheme if scheme in _SCHEMES else "")

    def _nearest(self, peer: str, chain: Sequence[str]) -> str:
        """The last address of `chain` that is no proxy of ours; what cannot be read ends the search."""
        nearest = peer
        for text in reversed(chain):
            address = _parsed(text)
            if address is None:
                break
            nearest = str(address)
            if not self._ours(address):
                break
        return nearest

    def _ours(self, address: Address | None) -> bool:
        return address is not None and any(
            address.version == network.version and address in network for network in self.networks
        )


_NAMES = frozenset({b"x-forwarded-for", b"forwarded", b"x-forwarded-proto"})
_SCHEMES = frozenset({"http", "https"})


def parse_network(text: str) -> Network:
    """An address or a network.

    Raises:
        InvalidInput: it is neither.
    """
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise InvalidInput(
            f"{text!r} is not an address or a network", remedy="e.g. 10.0.0.5 or 10.0.0.0/24"
        ) from error


def _elements(values: Sequence[str]) -> list[str]:
    return [each for value in values for each in value.split(",")]


def _for(values: Sequence[str]) -> list[str]:
    """The `for` of each element of Forwarded (RFC 7239); "" where one has none that is an address."""
    found = []
    for element in _elements(values):
        named = [
            m[1].strip('"') for part in element.split(";") if (m := _FORWARDED.fullmatch(part))
        ]
        found.append(named[0] if len(named) == 1 else "")
    return found


def _parsed(text: str) -> Address | None:
    """The address in `1.2.3.4`, `1.2.3.4:80`, `2001:db8::1` or `[2001:db8::1]:80`; IPv4 in IPv6 becomes IPv4."""
    text = text.strip()
    if (found := _PORT.fullmatch(text)) is not None:
        text = found[1].strip("[]")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if mapped is not None else address
