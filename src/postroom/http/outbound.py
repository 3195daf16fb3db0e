"""Connections to the outside on behalf of others: the only way out of this machine, and its guard.

A name is resolved once, every address that it has is checked, and the connection goes to a checked address. So DNS
rebinding, a name that means something else a moment later, gains nothing. Only the operator opens private addresses,
one `host:port` at a time. The networks that are not of the public internet are written out: `ipaddress.is_global`
differs between releases of Python, and it ignores addresses that carry another one (mapped, 6to4, NAT64, Teredo).
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from itertools import chain, zip_longest
from pathlib import Path
from weakref import WeakValueDictionary

from postroom.errors import (
    AddressRefused,
    EnvironmentFault,
    InvalidInput,
    PeerError,
    RequestTimeout,
)
from postroom.protocol.hosts import canonical_host, is_address, split_authority

CHUNK = 64 * 1024
MAX_ADDRESSES = 8
"""Addresses of one name that `connect` tries."""

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a name, in the order of preference; raises OSError."""

MAX_LOOKUPS = 4
"""Names that are looked up for one worker at a time."""

_RESOLVERS = ThreadPoolExecutor(16, thread_name_prefix="resolve")

Address = IPv4Address | IPv6Address

METADATA = frozenset(
    map(
        ip_address,
        (
            "169.254.169.254",  # most clouds
            "169.254.170.2",  # containers on AWS
            "fd00:ec2::254",  # AWS
            "100.100.100.200",  # Alibaba
            "168.63.129.16",  # Azure; the only one that looks public
            "192.0.0.192",  # Oracle
        ),
    )
)
"""Where clouds hand out a machine's own credentials: a sandbox would gain most by reaching these."""

INWARD = frozenset(
    {
        *("localhost", "metadata", "metadata.google.internal", "metadata.goog"),
        *("instance-data", "instance-data.ec2.internal", "metadata.azure.internal"),
        *("metadata.tencentyun.com", "metadata.oraclecloud.com"),
    }
)
"""Names of such places, and of this machine: refused whatever they resolve to, unless the operator has opened them."""

_LOOPBACK = (IPv4Address("127.0.0.1"), IPv6Address("::1"))

# IANA's registries of special-purpose addresses, IPv4 and IPv6.
_SPECIAL_4 = tuple(
    map(
        IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16"),
            *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24"),
            *("192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
            *("224.0.0.0/4", "240.0.0.0/4"),
        ),
    )
)
_GLOBAL_6 = IPv6Network("2000::/3")
_SPECIAL_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20")))
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)
"""Upper half of an interface id whose lower half is an IPv4 address (RFC 5214)."""


def inner(address: Address) -> Address:
    """The IPv4 address that an IPv6 address stands for, else the address itself."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(address: Address) -> bool:
    """Whether `address` belongs to the public internet and to no cloud's metadata service."""
    address = inner(address)
    if address in METADATA:
        return False
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_4)
    if address.sixtofour is not None and not is_public(address.sixtofour):
        return False
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return False
    return address in _GLOBAL_6 and not any(address in network for network in _SPECIAL_6)


# A pool of its own: lookups that hang must not take all threads.


async def resolve(host: str, port: int) -> list[str]:
    """Ask the system; raises OSError."""
    found = await asyncio.get_running_loop().run_in_executor(
        _RESOLVERS, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    )
    return [str(info[4][0]) for info in found]


class FairLookups:
    """Looks up names for several workers, a few at a time for each: a name with silent servers holds a thread long.

    Args:
        most: lookups of one worker at a time; an abandoned one counts until it has ended.
    """

    def __init__(self, resolve: Resolve, most: int = MAX_LOOKUPS) -> None:
        self._resolve = resolve
        self._most = most
        self._slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of(self, asker: str) -> Resolve:
        """The `Resolve` of `asker`."""
        slots = self._slots.setdefault(asker, asyncio.Semaphore(self._most))

        async def resolve(host: str, port: int) -> list[str]:
            await slots.acquire()
            lookup = asyncio.ensure_future(self._resolve(host, port))
            lookup.add_done_callback(lambda _: slots.release())
            return await asyncio.shield(lookup)

        return resolve


@dataclass(frozen=True, slots=True)
class PrivateAccess:
    """A private place that the operator has opened.

    Attributes:
        host: a canonical name, or a network.
    """

    host: str | IPv4Network | IPv6Network
    port: int

    @classmethod
    def parse(cls, text: str) -> PrivateAccess:
        """The place in `host:port` or `network:port`.

        Raises:
            InvalidInput: malformed, or without a port.
        """
        place, slash, rest = text.partition("/")
        length, _, after = rest.partition(":")
        host, port = split_authority(f"{place}:{after}" if slash else text, 0)
        if not port:
            raise InvalidInput(f"{text!r} names no port", remedy="127.0.0.1:11434")
        if not is_address(host):
            if slash:
                raise InvalidInput(f"{text!r} is not a network", remedy="10.0.0.0/8:443")
            return cls(host, port)
        try:
            return cls(ip_network(f"{host}/{length}" if slash else host), port)
        except ValueError as error:
            raise InvalidInput(f"{text!r} is not a network", remedy="10.0.0.0/8:443") from error

    def opens(self, host: str, port: int, address: Address) -> bool:
        """Whether the gateway may connect to `address` as an address of `host`."""
        if port != self.port:
            return False
        if isinstance(self.host, str):
            return host == self.host and not _never(address)
        exact = self.host.num_addresses == 1
        return address in self.host and (exact or not _never(address))


def _never(address: Address) -> bool:
    """Whether only its very address opens it."""
    return (
        address in METADATA
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
    )


@dataclass(frozen=True, slots=True)
class OutboundPolicy:
    """The private places that are open, and the lookup of names."""

    private: tuple[PrivateAccess, ...] = ()
    resolve: Resolve = field(default=resolve)

    @classmethod
    def parse(cls, private: Iterable[str]) -> OutboundPolicy:
        """The policy that opens `private` (see `PrivateAccess.parse`)."""
        return cls(tuple(PrivateAccess.parse(text) for text in private))


def check_name(host: str, port: int, policy: OutboundPolicy) -> None:
    """Refuse a name that means this machine or a cloud's metadata service, unless the operator has opened it.

    Args:
        host: in canonical form.

    Raises:
        AddressRefused: it is such a name.
    """
    named = host.removesuffix(".")
    inward = named in INWARD or named.endswith(".localhost")
    # A place of this machine that is opened by its address is opened by its name, too.
    if inward and not any(p.opens(host, port, at) for p in policy.private for at in _LOOPBACK):
        raise _refused(host, host, port)


def check_address(text: str, host: str, port: int, policy: OutboundPolicy) -> str:
    """The address to connect to: `text`, or the IPv4 address that is mapped in it.

    Args:
        text: an IP address of `host`.
        host: what the request asked for, in canonical form.

    Raises:
        AddressRefused: not of the public internet, and not opened.
    """
    try:
        given = ip_address(text)
    except ValueError as error:
        raise AddressRefused(f"{host} has no IP address") from error
    address = inner(given)
    if is_public(address) or any(p.opens(host, port, address) for p in policy.private):
        # NAT64 stays as it is: without it a network that has only IPv6 reaches nothing.
        return str(getattr(given, "ipv4_mapped", None) or given)
    named = host if host == str(address) else f"{host} is at {address}, which"
    raise _refused(named, host, port)


def _refused(named: str, host: str, port: int) -> AddressRefused:
    return AddressRefused(
        f"{named} is not an address of the public internet",
        remedy=f"the operator can open it: postroom config set egress.allow_private {_example(host, port)}",
    )


def _example(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def addresses(host: str, port: int, policy: OutboundPolicy) -> list[str]:
    """The checked addresses of `host`, both families by turns; one refused address refuses all.

    Raises:
        AddressRefused: see `check_address`.
        PeerError: the name has no address.
    """
    if is_address(host):
        found = [host]
    else:
        check_name(host, port, policy)
        found = await _lookup(host, port, policy)
    checked = list(dict.fromkeys(check_address(text, host, port, policy) for text in found))
    if not checked:
        raise PeerError(f"{host} has no address")
    first = ":" in checked[0]
    families = (
        [text for text in checked if (":" in text) is first],
        [text for text in checked if (":" in text) is not first],
    )
    turns = chain.from_iterable(zip_longest(*families))
    return [text for text in turns if text is not None][:MAX_ADDRESSES]


async def _lookup(host: str, port: int, policy: OutboundPolicy) -> list[str]:
    try:
        return await policy.resolve(host, port)
    except OSError as error:
        raise PeerError(f"the name {host} cannot be resolved: {error.strerror or error}") from error


async def connect(
    host: str,
    port: int,
    *,
    policy: OutboundPolicy,
    tls: ssl.SSLContext | None,
    timeout: float,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to `host`, at a checked address.

    Args:
        host: name or address, which the certificate must name.
        tls: `client_context()`, None for no TLS.
        timeout: seconds for resolving, connecting and the TLS handshake together.

    Raises:
        AddressRefused: an address of it is not allowed; nothing was connected to.
        PeerError: nothing answers, or its certificate is not valid.
        RequestTimeout: not within `timeout`.
    """
    host = canonical_host(host)
    try:
        async with asyncio.timeout(timeout):
            places = await addresses(host, port, policy)
            return await _first(host, port, places, tls, timeout)
    except TimeoutError as error:
        raise RequestTimeout(f"{host} port {port} was not reached within {timeout:g} s") from error


async def _first(
    host: str, port: int, places: list[str], tls: ssl.SSLContext | None, timeout: float
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    failure: OSError | None = None
    for left, place in zip(range(len(places), 0, -1), places, strict=True):
        try:
            # Each address gets its share of the time, the last one the rest: one silent address is not the end.
            async with asyncio.timeout(timeout / 2 / left if left > 1 else None):
                return await _open(host, port, place, tls)
        except ssl.SSLError as error:
            raise PeerError(f"no TLS with {host} port {port}: {_reason(error)}") from error
        except OSError as error:  # TimeoutError is one
            failure = error
    why = failure.strerror if failure is not None and failure.strerror else "no answer"
    raise PeerError(f"cannot connect to {host} port {port}: {why}") from failure


def _reason(error: ssl.SSLError) -> str:
    return getattr(error, "verify_message", "") or error.reason or "the handshake failed"


async def _open(
    host: str, port: int, place: str, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    family = socket.AF_INET6 if ":" in place else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (place, port))
        return await asyncio.open_connection(
            sock=sock, ssl=tls, server_hostname=host if tls else None, limit=CHUNK
        )
    except BaseException:
        sock.close()
        raise


def client_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """TLS as a client: the system's authorities and those of `ca_file`; HTTP/1.1; names are verified."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # ssl.SSLError is one
            raise EnvironmentFault(
                f"the certificates in {ca_file} cannot be read", remedy="a file in PEM form"
            ) from error
    return context
