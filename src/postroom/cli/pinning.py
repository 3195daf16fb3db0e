"""Whom a login trusts: an authority that this system knows, or the one that its person has confirmed."""

from __future__ import annotations

import sys

import click

from postroom.client.pinning import as_pem, authority_with, fingerprint_of, unknown_authority
from postroom.errors import InvalidInput
from postroom.protocol.origins import Origin


def pinned(origin: Origin, wanted: str) -> str:
    """PEM of the only authority to trust for `origin`; "" for those that this system trusts.

    Args:
        wanted: the authority's fingerprint, "" to ask for a word on it where the system does not know it.

    Raises:
        InvalidInput: nobody confirms the authority.
        ProtocolViolation, NotRunning: as `authority_with`.
    """
    if origin.scheme == "http":
        click.echo(
            f"{origin.url} is plain HTTP: your key goes to whatever program of this machine listens there, and\n"
            "nothing proves that it is the post room. That of your own account needs no login; that of another\n"
            "one proves itself with TLS: postroom config set tls.mode always, there.",
            err=True,
        )
        return ""
    if wanted:
        return as_pem(authority_with(origin, wanted))
    authority = unknown_authority(origin)
    if authority is None:
        return ""
    _confirm(origin, fingerprint_of(authority))
    return as_pem(authority)


def _confirm(origin: Origin, fingerprint: str) -> None:
    click.echo(f"This system does not know who vouches for {origin.url}.", err=True)
    click.echo(f"  authority SHA-256  {fingerprint}", err=True)
    if not sys.stdin.isatty():
        raise InvalidInput(
            "this system does not know that authority, and without a terminal you cannot confirm it",
            remedy="compare it with `postroom tls status` there, then: --fingerprint SHA256",
        )
    click.echo("`postroom tls status` shows it there. Compare before you say yes.", err=True)
    if not click.confirm("Is it the same?", err=True):
        raise InvalidInput("the authority is not trusted", remedy="ask who runs the post room")
