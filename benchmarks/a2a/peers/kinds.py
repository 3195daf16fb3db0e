"""What a kind of contender has to provide, and where each is. A kind's packages are loaded only where it runs."""

from __future__ import annotations

import importlib
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

MODULES = {
    "raw-nats": "floors",
    "raw-jetstream": "floors",
    "jsonrpc": "http",
    "rest": "http",
    "jsonrpc-bare": "bare",
    "grpc": "grpc_",
    "slim": "slim",
    "slim-node": "slim",
    "synadia": "synadia",
    "nats": "ours",
    "nats-js": "ours",
    "nats-json": "ours",
    "nats-fast": "ours",
    "nats-json-fast": "ours",
    "nats-js-fast": "ours",
}
"""Module here, by kind."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a peer is started, as one JSON object on its command line.

    Attributes:
        kind: key of `MODULES`.
        handler: "trivial", "sdk" or "ours".
        bus: address of the nats-server, or of the SLIM node.
        address: of the server, for a client.
        name: unique among the contenders; part of subjects and names.
        uvloop: run on uvloop, else on asyncio's own loop.
    """

    kind: str
    handler: str = ""
    bus: str = ""
    address: str = ""
    name: str = ""
    uvloop: bool = True


class Caller(Protocol):
    """A connected client. Each method raises whatever went wrong, an answer of the wrong kind too."""

    async def unary(self, content: str) -> None:
        """Send `content` and take the one answer."""

    async def stream(self, content: str) -> float:
        """Send `content` and take all events; returns the seconds until the first was there."""
        ...


class Kind(Protocol):
    """Interface of the modules."""

    def serve(self, options: Options) -> AbstractAsyncContextManager[str]:
        """Serve inside the context; gives the address for `connect`."""
        ...

    def connect(self, options: Options) -> AbstractAsyncContextManager[Caller]:
        """A client of the server at `options.address`."""
        ...


def kind(name: str) -> Kind:
    """The module of a kind."""
    module: Kind = importlib.import_module(f"benchmarks.a2a.peers.{MODULES[name]}")  # ty: ignore[invalid-assignment]
    return module
