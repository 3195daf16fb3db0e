"""Addresses of an operator's NATS, as a person writes them in the environment."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from postroom.bus.fitness import REMEDY
from postroom.errors import InvalidInput

SCHEMES = ("nats", "tls")
DEFAULT_PORT = 4222


def parse_servers(urls: Sequence[str], *, always_tls: bool = False) -> tuple[str, ...]:
    """The complete addresses for `urls`: `nats://host:port` or `tls://host:port`.

    Args:
        always_tls: demand TLS on loopback, too.

    Raises:
        InvalidInput: a malformed address, a credential in one, or clear text that would leave this machine.
    """
    servers = tuple(_server(url, always_tls) for url in urls)
    if len({urlsplit(server).scheme for server in servers}) > 1:
        raise InvalidInput(
            "POSTROOM_NATS_URL mixes nats:// and tls://", remedy="write tls:// for all"
        )
    return servers


def _server(url: str, always_tls: bool) -> str:
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(
            f"POSTROOM_NATS_URL carries a credential for {parts.hostname}",
            remedy=f"leave it out: a post room proves itself by its own keys; {REMEDY}",
        )
    host, port = _place(parts, url)
    if parts.scheme == "nats" and (always_tls or not _is_loopback(host)):
        raise InvalidInput(
            f"the connection to {host} would be in clear text", remedy=f"write tls://{host}:{port}"
        )
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _place(parts: SplitResult, url: str) -> tuple[str, int]:
    try:
        host, port = parts.hostname or "", parts.port or DEFAULT_PORT
    except ValueError:
        host, port = "", 0
    beyond = parts.path.strip("/") or parts.query or parts.fragment
    if parts.scheme not in SCHEMES or not host or beyond:
        raise InvalidInput(
            f"{url!r} in POSTROOM_NATS_URL is not the address of a NATS server",
            remedy="write nats://HOST:PORT or tls://HOST:PORT, several with commas between them",
        )
    return host, port


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def tls_context(authority: Path | None) -> ssl.SSLContext:
    """A context that trusts the certificate in `authority`; None trusts this machine's authorities.

    Raises:
        InvalidInput: the file cannot be read, or has no certificate.
    """
    try:
        context = ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"{authority} (POSTROOM_NATS_CA) holds no certificate: {error}"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
