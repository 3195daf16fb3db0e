"""The official SDK over gRPC."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import grpc
from a2a.client import ClientConfig, ClientFactory
from a2a.server.request_handlers import GrpcHandler
from a2a.types import a2a_pb2_grpc

from benchmarks.a2a.peers import agent
from benchmarks.a2a.peers.kinds import Caller, Options
from benchmarks.a2a.peers.sdk import connected


@asynccontextmanager
async def serve(options: Options) -> AsyncGenerator[str]:
    """Serve on a free port."""
    server = grpc.aio.server()
    handler = agent.handler(options.handler, agent.card("GRPC", ""))
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def connect(options: Options) -> AbstractAsyncContextManager[Caller]:
    """The SDK's client."""
    return connected(agent.card("GRPC", options.address), _factory)


def _factory(config: ClientConfig) -> ClientFactory:
    config.grpc_channel_factory = grpc.aio.insecure_channel
    return ClientFactory(config)
