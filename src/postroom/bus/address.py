"""The address of the bus, and connecting to it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Unpack

from postroom.errors import InvalidInput
from postroom_a2a.nats import WireConnection, connect
from postroom_a2a.nats.options import ConnectOptions, Dial

ATTEMPT = 2.0
"""Seconds for one attempt to connect; then the next server gets one."""

PING_INTERVAL = 10.0
"""Seconds between the client's own pings; two unanswered ones end a hanging connection."""


@dataclass(frozen=True, slots=True)
class BusAddress:
    """The parameters of a connection beside a credential.

    Attributes:
        servers: `nats://host:port`, or `tls://` for an encrypted connection; each serves as well.
        tls: context for an encrypted connection, None for none. The handshake precedes the server's greeting (INFO), as
            `handshake_first` demands: an attacker in between could strip TLS from a greeting.
        tls_name: name that the server's certificate must have; "" for the host dialled.
        dial: opens the stream to a server; None for TCP.
    """

    servers: tuple[str, ...]
    tls: ssl.SSLContext | None = None
    tls_name: str = ""
    dial: Dial | None = None

    def __post_init__(self) -> None:
        """Refuse a `tls://` server without a TLS context."""
        if self.tls is None and any(server.startswith("tls://") for server in self.servers):
            raise InvalidInput("an address that begins with tls:// needs a TLS context")

    async def connect(self, **options: Unpack[ConnectOptions]) -> WireConnection:
        """Connect; the options are those of `postroom_a2a.connect`.

        A server that refuses the credential during a reconnect is asked again for ever: one that has just started
        learns of an organisation's accounts a moment later.

        Raises:
            Unauthorized: a server refused the credential.
            BusDisconnected: no server accepts within the seconds of the option `wait`.
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
