"""TLS contexts of both sides, and a rehearsed handshake that finds faults before a peer does.

Our clients speak TLS 1.3 only; our servers also take 1.2, for other clients.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from postroom.errors import InvalidInput

_STEPS = 8
"""A handshake has three flights; more mean that it does not end."""


def server_context(file: Path) -> ssl.SSLContext:
    """A context that shows the certificate in `file` (PEM: chain and key).

    Raises:
        InvalidInput: the file cannot be read, or its key belongs to another certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    show(context, file)
    return context


def show(context: ssl.SSLContext, file: Path) -> None:
    """Show the certificate in `file` to new connections; open connections stay.

    Raises:
        InvalidInput: the file cannot be read, or its key belongs to another certificate; the context is as it
            was.
    """
    try:
        context.load_cert_chain(file)
    except OSError as error:  # ssl.SSLError is an OSError
        reason = error.strerror or str(error)
        raise InvalidInput(f"{file} is not a certificate with its key: {reason}") from error


def client_context(ca: Path | None) -> ssl.SSLContext:
    """A context that trusts only the certificates in `ca`, or with None the ones that this system trusts.

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
    """Make a handshake in memory, which fails where a peer's would.

    Raises:
        InvalidInput: the client does not accept the server as `name`.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(back, there, server_hostname=name)
    far = server.wrap_bio(there, back, server_side=True)
    try:
        for _ in range(_STEPS):
            if all([_done(near), _done(far)]):  # both sides, whatever the first one reports
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
