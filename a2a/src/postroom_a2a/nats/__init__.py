"""A NATS client of our own: a connection, and JetStream, KV and object buckets on it (docs/binding.md, Connections)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from postroom_a2a.errors import InvalidInput
from postroom_a2a.nats.connection import WireConnection
from postroom_a2a.nats.options import ConnectOptions, Credentials, Options, read_servers
from postroom_a2a.nats.port import Connection, Frame
from postroom_a2a.nats.servers import Pool

if TYPE_CHECKING:
    from postroom_a2a.nats.jetstream import JetStream, Stored
    from postroom_a2a.nats.kv import Bucket
    from postroom_a2a.nats.mailbox import Mailbox
    from postroom_a2a.nats.objects import ObjectBucket
    from postroom_a2a.nats.pull import PullLoop

__all__ = [
    "Bucket",
    "Connection",
    "Credentials",
    "Frame",
    "JetStream",
    "Mailbox",
    "ObjectBucket",
    "Options",
    "PullLoop",
    "Stored",
    "WireConnection",
    "connect",
]


async def connect(
    servers: str | Sequence[str] = "nats://127.0.0.1:4222", **options: Unpack[ConnectOptions]
) -> WireConnection:
    """Connect to a NATS server.

    Args:
        servers: addresses such as `nats://user:password@host:port` or `tls://host`; when the connection loses one
            server, it tries the others.
        options: the fields of `Options`.

    Raises:
        InvalidInput: an address is malformed, or options contradict each other.
        Unauthorized: the server refuses the credential.
        BusDisconnected: no server is reached.
    """
    chosen = Options(**options)
    if chosen.dial is not None and chosen.tls_first:
        raise InvalidInput("`dial` decides itself when to begin TLS: leave out tls_first")
    connection = WireConnection(Pool(read_servers(servers), insist=chosen.insist), chosen)
    await connection.open()
    return connection


# Loaded at their first use, so a program pays only for the parts that it uses.
_MODULES = {
    "Bucket": "kv",
    "JetStream": "jetstream",
    "Mailbox": "mailbox",
    "ObjectBucket": "objects",
    "PullLoop": "pull",
    "Stored": "jetstream",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
