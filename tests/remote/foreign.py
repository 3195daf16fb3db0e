"""A server of the A2A SDK on a real socket: one agent by JSON-RPC and REST, in A2A 1.0 and 0.3."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from a2a.server.agent_execution import RequestContext
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import (
    create_agent_card_routes,
    create_jsonrpc_routes,
    create_rest_routes,
)
from a2a.server.tasks import (
    InMemoryPushNotificationConfigStore,
    InMemoryTaskStore,
    TaskUpdater,
)
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from library.agents import Agent, text


async def acts(agent: Agent, context: RequestContext, _: Any, updater: TaskUpdater) -> None:
    """Does what the first word of the request says."""
    said = context.get_user_input()
    word = said.partition(" ")[0]
    if word == "ask" and context.current_task is None:
        await updater.requires_input(updater.new_agent_message(text("which one?")))
        return
    if word == "wait":
        await updater.add_artifact(text("begun"), artifact_id="b", name="begun")
        agent.begun.set()
        await agent.gate.wait()
    if word == "fail":
        await updater.failed(updater.new_agent_message(text("cannot do that")))
        return
    await updater.add_artifact(text("one "), artifact_id="a", name="poem", append=False)
    await updater.add_artifact(text(said), artifact_id="a", append=True, last_chunk=True)
    await updater.complete(updater.new_agent_message(text("done")))


@dataclass
class Foreign:
    """The server.

    Attributes:
        keys: if not empty, a request needs one of these as `x-key`.
        seen: method and path of each request, and its headers.
    """

    agent: Agent
    url: str
    card: AgentCard
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)

    @property
    def streams(self) -> bool:
        return self.card.capabilities.streaming

    def app(self, handler: DefaultRequestHandler) -> Any:
        routes = [
            *create_agent_card_routes(self.card),
            *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix="/rest"),
        ]
        inner = Starlette(routes=routes)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "http":
                asked = Request(scope)
                self.seen.append((f"{asked.method} {asked.url.path}", dict(asked.headers)))
                if self.keys and asked.headers.get("x-key") not in self.keys:
                    await Response(status_code=401)(scope, receive, send)
                    return
            await inner(scope, receive, send)

        return app


@asynccontextmanager
async def foreign(
    *interfaces: tuple[str, str, str],
    name: str = "poet",
    streaming: bool = True,
    port: int = 0,
    agent: Agent | None = None,
) -> AsyncGenerator[Foreign]:
    """The server; `interfaces` are (path, binding, version), by default JSON-RPC of 1.0."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, bool(port))
        listening.bind(("127.0.0.1", port))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        card = AgentCard(
            name=name,
            description="Writes.",
            version="1",
            supported_interfaces=[
                AgentInterface(url=f"{url}{path}", protocol_binding=binding, protocol_version=v)
                for path, binding, v in interfaces or (("/rpc", "JSONRPC", "1.0"),)
            ],
            capabilities=AgentCapabilities(streaming=streaming, push_notifications=True),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=[AgentSkill(id="write", name="write", description="writes", tags=["text"])],
        )
        served = Foreign(agent or Agent(acts), url, card)
        handler = DefaultRequestHandler(
            served.agent,
            InMemoryTaskStore(),
            card,
            push_config_store=InMemoryPushNotificationConfigStore(),
        )
        config = uvicorn.Config(served.app(handler), log_level="error", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        config.timeout_graceful_shutdown = 1
        listening.listen(64)
        running = asyncio.create_task(_serve(server, listening))
        try:
            yield served
        finally:
            served.agent.gate.set()
            server.should_exit = True
            server.force_exit = True
            await running
            await handler.aclose()


async def _serve(server: uvicorn.Server, listening: socket.socket) -> None:
    server.install_signal_handlers = lambda: None  # ty: ignore[missing-attribute]
    config = server.config
    if not config.loaded:
        config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listening])
    await server.main_loop()
    await server.shutdown(sockets=[listening])
