"""Where the bus is, and how a connection to it is made."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Unpack

from postroom.errors import InvalidInput
from postroom_a2a.nats import WireConnection, connect
from postroom_a2a.nats.options import ConnectOptions, Dial

ATTEMPT = 2.0
"""Seconds for one attempt to connect; then the next server is tried."""

PING_INTERVAL = 10.0
"""Seconds between the client's own pings; two unanswered ones end a connection that hangs."""


@dataclass(frozen=True, slots=True)
class BusAddress:
    """What a connection needs beside a credential.

    Attributes:
        servers: `nats://host:port`, or `tls://` for an encrypted connection; any of them will do.
        tls: context for an encrypted connection, None for none. The handshake comes before the server's greeting
            (INFO), as `handshake_first` demands: whoever sits between could take the word of TLS out of a greeting.
        tls_name: name that the server's certificate must have; "" for the host dialled.
        dial: opens the stream to a server; None for TCP.
    """

    servers: tuple[str, ...]
    tls: ssl.SSLContext | None = None
    tls_name: str = ""
    dial: Dial | None = None

    def __post_init__(self) -> None:
        """Check it.

        Raises:
            InvalidInput: a server is to be spoken to by TLS, and nothing says whom to trust.
        """
        if self.tls is None and any(server.startswith("tls://") for server in self.servers):
            raise InvalidInput("an address that begins with tls:// needs a TLS context")

    async def connect(self, **options: Unpack[ConnectOptions]) -> WireConnection:
        """Connect; the options are those of `postroom_a2a.connect`.

        A server that refuses the credential while we connect again is asked again for ever: one that has just
        started learns of an organisation's accounts a moment later.

        Raises:
            Unauthorized: a server refused the credential.
            BusDisconnected: none lets us in within the seconds that the option `wait` gives.
        """
        options = {
            "timeout": ATTEMPT,
            "ping_interval": PING_INTERVAL,
            "insist": True,
            "tls": self.tls,
            "tls_first": self.tls is not None,
            "tls_name": self.tls_name,
            "dial": self.dial,
        } | options
        return await connect(self.servers, **options)
