"""The lines that a post room prints at its start: its addresses, and notes for its operator."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from postroom.build import version
from postroom.bus.host import BusHost
from postroom.client.locate import command
from postroom.control.endpoints import Endpoints
from postroom.disk import check_room
from postroom.errors import StateUnwritable
from postroom.settings import Settings
from postroom.store.place import shown_place

if TYPE_CHECKING:
    from postroom.control.certificate import CertificateKeeper


def say(text: str) -> None:
    """Print a line on standard output."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the banner has gone; the post room stays.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def banner(
    settings: Settings, urls: Sequence[str], host: BusHost, certificate: CertificateKeeper | None
) -> Iterator[str]:
    """The lines; `urls` are the API's, this machine's first, and the bus's."""
    api = ", ".join(url for url in urls if url.startswith("http"))
    yield f"Postroom {version()}"
    yield f"  API    {api}"
    yield f"  bus    {', '.join(host.address.servers)} (nats-server {host.version}{_whose(host)})"
    yield f"  state  {'in memory, gone at the end' if settings.memory else settings.state}"
    if database := shown_place(settings):
        yield f"  data   {database}"
    if settings.audit_lossy:
        yield "  AUDIT  LOSSY: what cannot be recorded passes nevertheless (POSTROOM_AUDIT)"
    if certificate is not None:
        from postroom.identity.certificates import day  # X.509, for those that have TLS only

        trusted = f"; clients trust {certificate.ca}" if certificate.ca else ""
        yield f"  TLS    certificate until {day(certificate.certificate.not_after)}{trusted}"
    for line in login_commands(settings, urls[1:], certificate):
        yield f"  login  {line}"


def login_commands(
    settings: Settings, urls: Sequence[str], certificate: CertificateKeeper | None
) -> Iterator[str]:
    """What others type on their machines, with the fingerprint of the authority that they are shown."""
    # A proxy in front shows a certificate of its own.
    pin = certificate.authority if certificate is not None and not settings.public_urls else ""
    for url in urls:
        if url.startswith("http"):
            yield f"postroom login {url}" + (f" --fingerprint {pin}" if pin else "")


def notes(
    settings: Settings,
    endpoints: Endpoints,
    host: BusHost,
    certificate: CertificateKeeper | None,
    addresses: Sequence[str],
) -> Iterator[str]:
    """Notes for the operator, a sentence each; `addresses` are this machine's, as others see it."""
    yield from host.doubts
    if certificate is not None and endpoints.outward is not None and endpoints.outward.everywhere:
        yield from _unnamed(settings, endpoints, certificate, addresses)
    if not settings.memory:
        try:
            check_room(settings.state)
        except StateUnwritable as error:
            yield str(error)


def own_addresses() -> tuple[str, ...]:
    """The address by which other machines reach this one, from its routes; none if it has no way out."""
    for family, far in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))  # for a datagram socket this sends nothing
            return (str(probe.getsockname()[0]),)
    return ()


def _unnamed(
    settings: Settings,
    endpoints: Endpoints,
    keeper: CertificateKeeper,
    addresses: Sequence[str],
) -> Iterator[str]:
    shown = keeper.certificate
    missing = [address for address in addresses if not shown.covers(address)]
    if not missing:
        return
    known = [name for name in endpoints.public_names(shown) if shown.covers(name)]
    said = f"the certificate does not stand for {', '.join(missing)}, this machine's address"
    if keeper.local:
        hosts = " ".join(f"--host {name}" for name in (*known, *missing))
        down, init = (command(settings.state, do) for do in ("down", f"tls init --force {hosts}"))
        yield f"{said}; try: {down}, then {init}, and give clients the new ca.pem"
    elif not known:
        yield f"{said}, and for no other name of it; try: a certificate that does"


def _whose(host: BusHost) -> str:
    if host.pid:
        return ""
    return f", not ours, {host.replicas} {'copies' if host.replicas > 1 else 'copy'}"
