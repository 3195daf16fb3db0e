"""TLS contexts of both sides, and a rehearsed handshake that finds faults before a peer does.

Our clients speak TLS 1.3 only; our servers also take 1.2, for other clients.
"""

from __future__ import annotations

import socket
import ssl
import sys
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


def pinned_context(authority: str) -> ssl.SSLContext:
    """A context that trusts one certificate (PEM) and what it has signed, for the right names.

    It need not be the end of a chain: an intermediate authority, or the server's own certificate, can be pinned too.

    Raises:
        InvalidInput: that is no certificate.
    """
    try:
        context = ssl.create_default_context(cadata=authority)
    except (OSError, ValueError) as error:
        raise InvalidInput("the authority that is kept is not a certificate") from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def shown_chain(host: str, port: int, timeout: float) -> tuple[bytes, ...]:
    """The certificates (DER) that a server shows, its own first. Nothing is verified, and nothing is told to it.

    Raises:
        OSError: it cannot be reached in `timeout` seconds, or speaks no TLS 1.3.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    with (
        socket.create_connection((host, port), timeout) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        if sys.version_info >= (3, 13):
            return tuple(secured.get_unverified_chain())
        # Before Python 3.13 only the private object has it; it is the same function of OpenSSL.
        shown = getattr(secured, "_sslobj").get_unverified_chain()  # noqa: B009 (no stub has it)
        return tuple(ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in shown)


def known_to_the_system(host: str, port: int, timeout: float) -> bool:
    """Whether this system trusts the server's certificate for that name; raises as `shown_chain`."""
    context = client_context(None)
    try:
        with (
            socket.create_connection((host, port), timeout) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return True
    except ssl.SSLCertVerificationError:
        return False


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
