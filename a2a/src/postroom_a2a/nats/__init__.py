"""A NATS client connection of our own, for programs whose time goes into messages (docs/binding.md, Connections)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from postroom_a2a.errors import InvalidInput
from postroom_a2a.nats.connection import WireConnection
from postroom_a2a.nats.options import ConnectOptions, Credentials, Options, read_servers
from postroom_a2a.nats.servers import Pool

__all__ = ["Credentials", "Options", "WireConnection", "connect"]


async def connect(
    servers: str | Sequence[str] = "nats://127.0.0.1:4222", **options: Unpack[ConnectOptions]
) -> WireConnection:
    """Connect to a NATS server.

    Args:
        servers: addresses as `nats://user:password@host:port` or `tls://host`; the others are tried when one is lost.
        options: as `Options` says.

    Raises:
        InvalidInput: an address is malformed, or options contradict each other.
        Unauthorized: the server does not know us.
        BusDisconnected: none is reached.
    """
    chosen = Options(**options)
    if chosen.dial is not None and chosen.tls_first:
        raise InvalidInput(
            "`dial` opens a stream in clear or begins TLS itself: leave out tls_first"
        )
    connection = WireConnection(Pool(read_servers(servers), insist=chosen.insist), chosen)
    await connection.open()
    return connection
