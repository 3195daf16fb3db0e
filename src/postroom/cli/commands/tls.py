"""`postroom tls`: the local certificate authority, and how long certificates last."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.declaring import Answer, answers, parameter
from postroom.cli.options import state_folder, state_option
from postroom.cli.output import print_json
from postroom.protocol.limits import MAX_CERTIFICATE_DAYS

if TYPE_CHECKING:
    from postroom.identity.certfolder import CertificateFolder
    from postroom.identity.certificates import Certificate
    from postroom.settings import Settings

EXPIRES = 10
"""Exit status when a certificate has expired or is about to, as for a fault of this machine."""

DAYS = parameter(
    f"--days N: Validity, at most {MAX_CERTIFICATE_DAYS} days.",
    type=click.FloatRange(min=1, max=MAX_CERTIFICATE_DAYS),
)

_answers = partial(answers, org=False, here=True)


@click.group("tls")
@state_option(org=False, here=True)
def command() -> None:
    """Make and renew certificates of a local authority, and show how long they last."""


@command.command("init", short_help="Make a local authority and a certificate.")
@_answers(
    "--host hosts NAME...: Host name or IP address that clients use; several by repetition.",
    DAYS,
    "--force: Replace an authority that is there.",
)
def init(hosts: tuple[str, ...], days: float | None, force: bool, as_json: bool) -> None:
    """Make a certificate authority for this machine, and a certificate under it.

    The certificate stands for localhost, this machine's own name and every --host. The authority can
    vouch for these names and no others.
    """
    from postroom.identity.certificates import SERVER_DAYS, read

    folder = _folder()
    _not_while_it_runs()
    folder.init(hosts, days=days or SERVER_DAYS, now=time.time(), force=force)
    if as_json:
        print_json(_described(folder, _settings()))
        return
    click.echo(f"made {folder.ca} (the authority) and {folder.server} (the certificate)")
    click.echo("On this machine nothing else is needed. Elsewhere:")
    pin = read(folder.ca.read_bytes()).fingerprint
    click.echo(f"  postroom login https://HOST:4281 --fingerprint {pin}")
    click.echo("Other clients need a copy of the authority:")
    click.echo("  curl --cacert ca.pem https://HOST:4281/livez")
    click.echo("  nats --tlsca ca.pem --tlsfirst -s tls://HOST:4222")
    click.echo("  Python: ssl.create_default_context(cafile='ca.pem')")
    click.echo(f"Keep {folder.ca_key} to yourself.")


@command.command("renew", short_help="Make a new certificate under the same authority.")
@_answers(DAYS)
def renew(days: float | None, as_json: bool) -> Answer:
    """Make a new certificate under the same authority; clients need nothing new.

    A post room that runs shows it within seconds; connections stay. It renews by itself in the last
    third of a certificate's life.
    """
    folder = _folder()
    found = folder.renew(now=time.time(), days=days)
    if as_json:
        return _described(folder, _settings()), ()
    click.echo(f"renewed {folder.server}, valid until {_day(found)}")
    return None


@command.command("status", short_help="Show certificates and how long they last.")
@_answers()
def status(as_json: bool) -> int:
    """Show the certificates: whom they stand for, until when, and their fingerprints.

    The exit status is 10 if one has expired or is about to.
    """
    from postroom.errors import NotFound

    shown = _described(_folder(), _settings())
    if not shown["certificates"]:
        raise NotFound(
            f"there are no certificates in {_folder().folder}", remedy="postroom tls init"
        )
    if as_json:
        print_json(shown)
    else:
        for one in shown["certificates"]:
            _print(one)
    return EXPIRES if any(one["state"] != "valid" for one in shown["certificates"]) else 0


def _settings() -> Settings:
    from postroom.settings.sources import load

    return load(state_folder())


def _folder() -> CertificateFolder:
    from postroom.identity.certfolder import CertificateFolder
    from postroom.settings import Settings

    return CertificateFolder(Settings(state=state_folder()).tls_folder)


def _not_while_it_runs() -> None:
    from contextlib import suppress

    from postroom.client.locate import locate
    from postroom.errors import AlreadyRunning, NotRunning

    with suppress(NotRunning):
        server = locate(state_folder())
        if server.url.startswith("https:") or server.ca:
            raise AlreadyRunning(
                f"a post room runs at {server.url} with another authority", remedy="postroom down"
            )


def _described(folder: CertificateFolder, settings: Settings) -> dict[str, Any]:
    """Each certificate once: a shown one is mostly a copy of a stored one."""
    from postroom.identity.certificates import read

    places = [
        ("authority", folder.ca),
        ("certificate", settings.tls_cert or folder.server),
        ("shown", folder.serving),
    ]
    found: dict[str, dict[str, Any]] = {}
    for kind, path in places:
        if path.exists():
            certificate = read(path.read_bytes())
            found.setdefault(certificate.fingerprint, _record(kind, str(path), certificate))
    return {"certificates": list(found.values())}


def _record(kind: str, path: str, certificate: Certificate) -> dict[str, Any]:
    from postroom.identity.certificates import warning_due
    from postroom_a2a.times import format_time

    now = time.time()
    state = "expiring" if warning_due(certificate, now) else "valid"
    return {
        "kind": kind,
        "path": path,
        "state": "expired" if certificate.not_after <= now else state,
        "subject": certificate.subject,
        "issuer": certificate.issuer,
        "names": list(certificate.names),
        "not_before": format_time(certificate.not_before),
        "not_after": format_time(certificate.not_after),
        "days_left": round(certificate.days_left(now), 1),
        "fingerprint": certificate.fingerprint,
    }


def _print(one: dict[str, Any]) -> None:
    from postroom_a2a.text import one_line

    colour = {"expired": "red", "expiring": "yellow"}.get(one["state"])
    click.echo(f"{one['kind']}: {one_line(one['subject'])}, by {one_line(one['issuer'])}")
    click.echo(f"  {click.style(one['state'], fg=colour)}, {one['days_left']:g} days left")
    if one["names"]:
        click.echo(f"  for {one_line(', '.join(one['names']), 1000)}")
    click.echo(f"  SHA-256 {one['fingerprint']}")
    click.echo(f"  {one['path']}")


def _day(certificate: Certificate) -> str:
    from postroom.identity.certificates import day

    return day(certificate.not_after)
