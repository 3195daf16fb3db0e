"""The IP addresses of the public internet, in whatever form they come.

The networks are written out: `ipaddress.is_global` differs between releases of Python, and it ignores addresses that
carry another one (mapped, 6to4, NAT64, Teredo).
"""

from __future__ import annotations

from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)

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
