"""Whom a login trusts: an authority that this system knows, or the one that its person has confirmed."""

from __future__ import annotations

import hashlib
import re
import ssl
import sys

import click

from postroom.errors import InvalidInput, NotRunning, ProtocolViolation
from postroom.protocol.origins import Origin
from postroom.tls import known_to_the_system, shown_chain

TIMEOUT = 10.0
"""Seconds to reach the server; a person waits for it."""

_FINGERPRINT = re.compile(r"[0-9a-f]{64}")


def fingerprint_of(certificate: bytes) -> str:
    """SHA-256 of a certificate (DER), hex, as `postroom tls status` shows it."""
    return hashlib.sha256(certificate).hexdigest()


def given_fingerprint(text: str) -> str:
    """A fingerprint as a person has it, in our spelling.

    Raises:
        InvalidInput: it is not a SHA-256.
    """
    found = text.strip().lower().removeprefix("sha256:").replace(":", "")
    if _FINGERPRINT.fullmatch(found) is None:
        raise InvalidInput(
            f"{text!r} is not a SHA-256 fingerprint",
            remedy="64 hex digits: postroom tls status, there",
        )
    return found


def pinned(origin: Origin, wanted: str) -> str:
    """PEM of the only authority to trust for `origin`; "" for those that this system trusts.

    Nothing is sent to the server before this returns. Whoever sits in between can show an authority of theirs, so
    only the comparison of the fingerprint with the true one protects the first login.

    Args:
        wanted: the authority's fingerprint, "" to ask for a word on it where the system does not know it.

    Raises:
        InvalidInput: nobody confirms the authority.
        ProtocolViolation: the server has shown no certificate with that fingerprint.
        NotRunning: nobody answers there, or not with TLS.
    """
    if origin.scheme == "http":
        return ""
    host, port = origin.host, origin.port
    try:
        if not wanted and known_to_the_system(host, port, TIMEOUT):
            return ""
        chain = shown_chain(host, port, TIMEOUT)
    except OSError as error:
        reason = error.strerror or str(error)
        raise NotRunning(
            f"no post room answers at {origin.url}: {reason}",
            remedy="is it up there (postroom up --listen ADDR), and is the way to it open?",
        ) from error
    if not wanted:
        authority = chain[-1]
        _confirm(origin, fingerprint_of(authority))
    else:
        shown = {fingerprint_of(each): each for each in chain}
        if wanted not in shown:
            raise ProtocolViolation(
                f"the server at {origin.url} shows no certificate with the fingerprint {wanted}",
                remedy="somebody may sit in between; or it has a new authority: postroom tls status, there",
            )
        authority = shown[wanted]
    return ssl.DER_cert_to_PEM_cert(authority)


def _confirm(origin: Origin, fingerprint: str) -> None:
    click.echo(f"This system does not know who vouches for {origin.url}.", err=True)
    click.echo(f"  authority SHA-256  {fingerprint}", err=True)
    if not sys.stdin.isatty():
        raise InvalidInput(
            "nobody can be asked whether that is the authority of the post room",
            remedy="compare it with `postroom tls status` there, then: --fingerprint SHA256",
        )
    click.echo("`postroom tls status` shows it there. Compare before you say yes.", err=True)
    if not click.confirm("Is it the same?", err=True):
        raise InvalidInput("the authority is not trusted", remedy="ask who runs the post room")
