"""The authority above a server that this system does not know: seen once, unverified, then the only one trusted.

Nothing is sent to the server before that. Whoever sits in between can show an authority of theirs, so only the
comparison of the fingerprint with the true one protects the first connection.
"""

from __future__ import annotations

import hashlib
import re
import ssl

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


def unknown_authority(origin: Origin) -> bytes | None:
    """The last certificate (DER) that the server at `origin` shows; None if this system trusts it anyway.

    Raises:
        NotRunning: nobody answers there, or not with TLS 1.3.
    """
    try:
        if known_to_the_system(origin.host, origin.port, TIMEOUT):
            return None
        return shown_chain(origin.host, origin.port, TIMEOUT)[-1]
    except OSError as error:
        raise _silent(origin, error) from error


def authority_with(origin: Origin, fingerprint: str) -> bytes:
    """The certificate (DER) with that fingerprint, which the server at `origin` has to show.

    Raises:
        ProtocolViolation: it has shown none.
        NotRunning: nobody answers there, or not with TLS 1.3.
    """
    try:
        chain = shown_chain(origin.host, origin.port, TIMEOUT)
    except OSError as error:
        raise _silent(origin, error) from error
    for each in chain:
        if fingerprint_of(each) == fingerprint:
            return each
    raise ProtocolViolation(
        f"the server at {origin.url} shows no certificate with the fingerprint {fingerprint}",
        remedy="somebody may sit in between; or it has a new authority: postroom tls status, there",
    )


def as_pem(certificate: bytes) -> str:
    """The certificate in the form that is kept."""
    return ssl.DER_cert_to_PEM_cert(certificate)


def _silent(origin: Origin, error: OSError) -> NotRunning:
    reason = error.strerror or str(error)
    return NotRunning(
        f"no post room answers at {origin.url}: {reason}",
        remedy="is it up there (postroom up --listen ADDR), and is the way to it open?",
    )
