"""Where the bus is, and how a connection to it is made."""

from __future__ import annotations

import ssl
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BusAddress:
    """What a connection needs beside a credential.

    Attributes:
        servers: `nats://host:port`, or `tls://` for an encrypted connection; any of them will do.
        tls: context for an encrypted connection, None for none.
        tls_first: the TLS handshake comes before the server's greeting (INFO), as `handshake_first` demands.
        tls_name: name that the server's certificate must have; "" for the host dialled.
    """

    servers: tuple[str, ...]
    tls: ssl.SSLContext | None = None
    tls_first: bool = False
    tls_name: str = ""
