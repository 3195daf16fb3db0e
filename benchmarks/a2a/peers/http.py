"""The official SDK over HTTP: JSON-RPC and REST, served by uvicorn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import uvicorn
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from starlette.applications import Starlette

from benchmarks.a2a.peers import agent
from benchmarks.a2a.peers.kinds import Caller, Options
from benchmarks.a2a.peers.sdk import connected

BINDINGS = {"jsonrpc": "JSONRPC", "jsonrpc-bare": "JSONRPC", "rest": "HTTP+JSON"}


@asynccontextmanager
async def serve(options: Options) -> AsyncGenerator[str]:
    """Serve on a free port."""
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        binding = BINDINGS[options.kind]
        handler = agent.handler(options.handler, agent.card(binding, url))
        rpc = binding == "JSONRPC"
        routes = create_jsonrpc_routes(handler, "/") if rpc else create_rest_routes(handler)
        # Long enough that no connection is cut between two turns of its client.
        config = uvicorn.Config(
            Starlette(routes=routes), log_level="warning", access_log=False, timeout_keep_alive=900
        )
        server = uvicorn.Server(config)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listening]))
            try:
                yield url
            finally:
                server.should_exit = True


def connect(options: Options) -> AbstractAsyncContextManager[Caller]:
    """The SDK's client."""
    return connected(agent.card(BINDINGS[options.kind], options.address))
