"""Our binding, over core NATS and over JetStream; protobuf as peers of A2A 1.0 agree on it, or JSON frames.

A kind that ends in `-fast` runs on the binding's own connection, the others on nats-py's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import nats
from a2a.client import ClientConfig, ClientFactory
from nats.aio.client import Client

import postroom_a2a as a2a
from benchmarks.a2a.peers import agent
from benchmarks.a2a.peers.kinds import Caller, Options
from benchmarks.a2a.peers.sdk import connected
from postroom_a2a import JetStreamA2AServer, NatsA2AServer, core_subject, register, request_subject
from postroom_a2a.nats import WireConnection

_CORE = {"nats": "urn:postroom:a2a:nats:1", "nats-json": "NATS"}
_DURABLE = "urn:postroom:a2a:nats-js:1"
_FAST = "-fast"


async def _open(options: Options) -> Client | WireConnection:
    if options.kind.endswith(_FAST):
        return await a2a.connect(options.bus)
    return await nats.connect(options.bus)


@asynccontextmanager
async def serve(options: Options) -> AsyncGenerator[str]:
    """Serve the agent on a subject of its own."""
    core = options.kind.removesuffix(_FAST) in _CORE
    subject = (core_subject if core else request_subject)(options.name)
    handler = agent.handler(options.handler, agent.card("NATS", f"nats://{subject}"))
    server = NatsA2AServer if core else JetStreamA2AServer
    async with (
        await _open(options) as connection,
        server(connection, subject=subject, handler=handler, concurrency=256),
    ):
        yield subject


@asynccontextmanager
async def connect(options: Options) -> AsyncGenerator[Caller]:
    """The SDK's client, with our transport."""
    kind = options.kind.removesuffix(_FAST)
    binding = _CORE.get(kind, _DURABLE)
    scheme = "nats" if kind in _CORE else "nats+js"
    card = agent.card(binding, f"{scheme}://{options.address}")
    async with await _open(options) as connection:

        def factory(config: ClientConfig) -> ClientFactory:
            return register(config, connection)

        clients: AbstractAsyncContextManager[Caller] = connected(card, factory)
        async with clients as caller:
            yield caller
