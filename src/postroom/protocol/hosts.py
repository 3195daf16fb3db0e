"""Names and addresses of hosts in one canonical spelling, so that the checked host is the one that is connected to.

A spelling that a resolver could read in a second way is refused: names outside ASCII, IPv4 addresses in hexadecimal,
octal or as one number, zones of IPv6.
"""

from __future__ import annotations

import ipaddress
import re

from postroom.errors import InvalidInput
from postroom.protocol.limits import MAX_HOST

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_CERTIFIED = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*")
_PORT = re.compile(r"[1-9][0-9]{0,4}")


def canonical_host(text: str) -> str:
    """`text` in its canonical spelling: lower case, no final dot, IPv6 compressed and without brackets.

    Raises:
        InvalidInput: it is not a host, or a resolver could read it in two ways.
    """
    if text.startswith("[") or ":" in text:
        return _ipv6(text)
    if not text.isascii():
        raise InvalidInput(
            f"the host {text!r} is not ASCII", remedy="write it in its encoded form: xn--..."
        )
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(name)
    if len(name) > MAX_HOST or not all(map(_LABEL.fullmatch, labels)):
        raise InvalidInput(f"{text!r} is not the name of a host")
    return name


def _ipv4(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError as error:
        raise InvalidInput(
            f"{text!r} is not an IPv4 address", remedy="four decimal numbers with dots between"
        ) from error


def _ipv6(text: str) -> str:
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    try:
        if "%" in inner:
            raise ValueError(inner)
        return str(ipaddress.IPv6Address(inner))
    except ValueError as error:
        raise InvalidInput(f"{text!r} is not an IPv6 address") from error


def split_authority(text: str, default_port: int) -> tuple[str, int]:
    """Canonical host, and port, of `host[:port]`; an IPv6 address stands in brackets.

    Raises:
        InvalidInput: it is not that, or it names a user.
    """
    if "@" in text:
        raise InvalidInput(
            "a host may not have a user before it", remedy="leave out what is up to @"
        )
    host, colon, port = text, "", ""
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        host += bracket
        if rest:
            colon, port = rest[0], rest[1:]
    elif text.count(":") <= 1:
        host, colon, port = text.partition(":")
    else:
        raise InvalidInput(
            f"{text!r} is not a host and port", remedy="an IPv6 address is written [::1]"
        )
    if colon not in {"", ":"}:
        raise InvalidInput(f"{text!r} is not a host and port")
    return canonical_host(host), _port(port) if colon else default_port


def _port(text: str) -> int:
    if _PORT.fullmatch(text) is None or int(text) > 65535:
        raise InvalidInput(f"{text!r} is not a port", remedy="a number from 1 to 65535")
    return int(text)


def canonical_name(name: str) -> str:
    """A host name or an address as a certificate names it; wider than `canonical_host`.

    Raises:
        InvalidInput: it is neither.
    """
    if (address := address_of(name)) is not None:
        return str(address)
    lowered = name.lower().rstrip(".")
    if len(lowered) > MAX_HOST or not _CERTIFIED.fullmatch(lowered):
        raise InvalidInput(f"{name!r} is not a host name or an IP address")
    return lowered


def address_of(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The IP address that a name is, None if it is another."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def authority(host: str, port: int, default_port: int = 0) -> str:
    """`host:port` as in a URL, without the port if it is the default one."""
    name = f"[{host}]" if ":" in host else host
    return name if port == default_port else f"{name}:{port}"


def is_address(host: str) -> bool:
    """Whether a canonical host is an IP address."""
    return ":" in host or host.rpartition(".")[2].isdigit()
