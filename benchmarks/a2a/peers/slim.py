"""A2A over SLIM: `slima2a` through a SLIM node, which plays the part that nats-server plays for us."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import slim_bindings  # ty: ignore[import-not-found]
from a2a.client import ClientFactory
from slima2a import initialize_slim_service, setup_slim_client  # ty: ignore[import-not-found]
from slima2a.client_transport import (  # ty: ignore[import-not-found]
    ClientConfig,
    MultiAgentClientFactory,
    slimrpc_channel_factory,
)
from slima2a.handler import SRPCHandler  # ty: ignore[import-not-found]
from slima2a.types.v1.a2a_pb2_slimrpc import (  # ty: ignore[import-not-found]
    add_A2AServiceServicer_to_server,
)

from benchmarks.a2a.peers import agent
from benchmarks.a2a.peers.kinds import Caller, Options
from benchmarks.a2a.peers.sdk import connected

SECRET = "a-secret-for-this-benchmark-alone"
BINDING = "slimrpc"


@asynccontextmanager
async def serve(options: Options) -> AsyncGenerator[str]:
    """A node, or an agent at one."""
    if options.kind == "slim-node":
        yield await _node()
        return
    _, app, name, connection = await setup_slim_client(
        "benchmarks", "a2a", options.name, options.bus, SECRET, "error"
    )
    address = f"benchmarks/a2a/{options.name}"
    card = agent.card(BINDING, address)
    server = slim_bindings.Server.new_with_connection(app, name, connection)
    servicer = SRPCHandler(card, agent.handler(options.handler, card))
    add_A2AServiceServicer_to_server(servicer, server)
    serving = asyncio.create_task(server.serve_async())
    try:
        yield address
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def _node() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    service = await initialize_slim_service("error")
    await service.run_server_async(slim_bindings.new_insecure_server_config(address))
    return f"http://{address}"


@asynccontextmanager
async def connect(options: Options) -> AsyncGenerator[Caller]:
    """The SDK's client with their transport."""
    name = f"client-{secrets.token_hex(4)}"
    _, app, _, connection = await setup_slim_client(
        "benchmarks", "a2a", name, options.bus, SECRET, "error"
    )

    def factory(config: ClientConfig) -> ClientFactory:
        return MultiAgentClientFactory(
            ClientConfig(
                streaming=config.streaming,
                supported_protocol_bindings=[BINDING],
                slimrpc_channel_factory=slimrpc_channel_factory(app, connection),
            )
        )

    async with connected(agent.card(BINDING, options.address), factory) as caller:
        yield caller
