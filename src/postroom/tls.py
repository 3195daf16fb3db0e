"""TLS contexts of both sides, and a rehearsal that tells whether they fit before a peer finds out.

Clients of ours speak TLS 1.3 alone; servers take 1.2, too, for clients that others wrote.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from postroom.errors import InvalidInput

_STEPS = 8
"""Flights of a handshake are three; more means that it does not come to an end."""


def server_context(file: Path) -> ssl.SSLContext:
    """A context that shows the certificate in `file` (PEM: chain and key).

    Raises:
        InvalidInput: it cannot be read, or the key is another's.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    show(context, file)
    return context


def show(context: ssl.SSLContext, file: Path) -> None:
    """From now on new connections see the certificate in `file`; those that are open stay.

    Raises:
        InvalidInput: it cannot be read, or the key is another's; the context is as it was.
    """
    try:
        context.load_cert_chain(file)
    except OSError as error:  # ssl.SSLError is one
        reason = error.strerror or str(error)
        raise InvalidInput(f"{file} is no certificate with its key: {reason}") from error


def client_context(ca: Path | None) -> ssl.SSLContext:
    """A context that trusts the certificates in `ca` and no others, or with None those that this system trusts.

    Raises:
        InvalidInput: `ca` holds no certificates.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidInput(f"{ca} holds no certificates to trust: {reason}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def rehearse(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> None:
    """Make a handshake in memory: what it says now, a peer would say later.

    Raises:
        InvalidInput: the client does not take the server for `name`.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(back, there, server_hostname=name)
    far = server.wrap_bio(there, back, server_side=True)
    try:
        for _ in range(_STEPS):
            if all([_done(near), _done(far)]):  # both, whatever the first one says
                return
    except ssl.SSLCertVerificationError as error:
        raise InvalidInput(
            f"the certificate does not stand for {name}: {error.verify_message}"
        ) from error
    except ssl.SSLError as error:
        raise InvalidInput(f"the certificate cannot be used: {error.reason}") from error
    raise InvalidInput("the certificate cannot be used: the handshake does not end")


def _done(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
