"""Where the bus is, and how a connection to it is made."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from postroom.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class BusAddress:
    """What a connection needs beside a credential.

    Attributes:
        servers: `nats://host:port`, or `tls://` for an encrypted connection; any of them will do.
        tls: context for an encrypted connection, None for none. The handshake comes before the server's greeting
            (INFO), as `handshake_first` demands: whoever sits between could take the word of TLS out of a greeting.
        tls_name: name that the server's certificate must have; "" for the host dialled.
    """

    servers: tuple[str, ...]
    tls: ssl.SSLContext | None = None
    tls_name: str = ""

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            InvalidInput: a server is to be spoken to by TLS, and nothing says whom to trust.
        """
        if self.tls is None and any(server.startswith("tls://") for server in self.servers):
            raise InvalidInput("an address that begins with tls:// needs a TLS context")
