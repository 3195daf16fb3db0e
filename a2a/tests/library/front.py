"""An agent behind the SDK's own JSON-RPC routes, called by the SDK's own client: by our handler, or by the SDK's."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from a2a.auth.user import UnauthenticatedUser, User
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    GetTaskRequest,
    Message,
    Role,
    SendMessageRequest,
    StreamResponse,
    Task,
    TaskState,
)
from a2a.utils.errors import TaskNotFoundError
from starlette.applications import Starlette
from starlette.requests import Request

from library.agents import Agent, text
from postroom_a2a.sdk.handling import AgentRequestHandler
from postroom_a2a.sdk.operations import Requester

PATIENCE = 20.0

CARD = AgentCard(
    name="poet",
    description="writes",
    version="1",
    supported_interfaces=[
        AgentInterface(
            url="http://agent.test/a2a", protocol_binding="JSONRPC", protocol_version="1.0"
        )
    ],
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="write", name="write", description="writes", tags=["text"])],
)


class HeaderUser(DefaultServerCallContextBuilder):
    """Believes the header, as a front door that has checked it."""

    def build_user(self, request: Request) -> User:
        uid = request.headers.get("x-user", "")
        return Requester(uid) if uid else UnauthenticatedUser()


@dataclass
class Front:
    """What a test calls; `client` is alice's."""

    agent: Agent
    handler: RequestHandler
    alice: str
    http: httpx.AsyncClient
    connect: Callable[..., Client]
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = self.connect(self.alice)

    async def send(self, what: str | Message, **options: Any) -> StreamResponse:
        """Send without a stream; the answer."""
        streaming = options.pop("streaming", False)
        client = self.connect(options.pop("user", self.alice), streaming=streaming)
        return (await self.events(client.send_message(ask(what, **options))))[-1]

    async def stream(self, what: str | Message, **options: Any) -> list[StreamResponse]:
        """Send with a stream; all that came."""
        return await self.events(self.client.send_message(ask(what, **options)))

    @staticmethod
    async def events(stream: Any) -> list[StreamResponse]:
        """All that a stream yields."""
        async with asyncio.timeout(PATIENCE):
            return [event async for event in stream]

    async def get(self, task: str) -> Task:
        return await self.client.get_task(GetTaskRequest(id=task))

    async def until(self, task: str, state: TaskState) -> Task:
        """Ask until the task is in that state."""
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    found = await self.get(task)
                    if found.status.state == state:
                        return found
                except TaskNotFoundError:
                    pass  # the SDK runs an agent before it has stored its task
                await asyncio.sleep(0.01)


def message(what: str, **fields: Any) -> Message:
    fields.setdefault("message_id", secrets.token_hex(16))
    return Message(role=Role.ROLE_USER, parts=text(what), **fields)


def ask(what: str | Message, **options: Any) -> SendMessageRequest:
    said = message(what) if isinstance(what, str) else what
    return SendMessageRequest(message=said, configuration=options)


def states(events: list[StreamResponse]) -> list[str]:
    """The states that a stream showed, each once as long as it lasted."""
    seen: list[str] = []
    for event in events:
        status = (event.task if event.HasField("task") else event.status_update).status
        name = TaskState.Name(status.state).removeprefix("TASK_STATE_").lower()
        if not event.HasField("artifact_update") and seen[-1:] != [name]:
            seen.append(name)
    return seen


def artifacts(task: Task) -> dict[str, str]:
    return {each.artifact_id: "".join(part.text for part in each.parts) for each in task.artifacts}


@asynccontextmanager
async def serving(handler: RequestHandler, agent: Agent) -> AsyncGenerator[Front]:
    """The handler behind the SDK's routes."""
    routes = create_jsonrpc_routes(handler, "/a2a", context_builder=HeaderUser())
    async with AsyncExitStack() as stack:
        transport = httpx.ASGITransport(Starlette(routes=routes))

        def connect(user: str, *, streaming: bool = True) -> Client:
            http = httpx.AsyncClient(transport=transport, headers={"x-user": user}, timeout=60)
            stack.push_async_callback(http.aclose)
            config = ClientConfig(httpx_client=http, streaming=streaming)
            return ClientFactory(config).create(CARD)

        alice = secrets.token_hex(16)
        headers = {"x-user": alice, "A2A-Version": "1.0"}
        async with httpx.AsyncClient(transport=transport, headers=headers) as http:
            yield Front(agent, handler, alice, http, connect)


@asynccontextmanager
async def reference(agent: Agent) -> AsyncGenerator[Front]:
    """The agent as the SDK runs it."""
    handler = DefaultRequestHandler(agent, InMemoryTaskStore(), CARD)
    async with serving(handler, agent) as front:
        yield front
    await handler.aclose()


@asynccontextmanager
async def ours(agent: Agent) -> AsyncGenerator[Front]:
    """The agent as our handler runs it."""
    handler = AgentRequestHandler(agent, CARD)
    async with serving(handler, agent) as front:
        yield front
    await handler.aclose()
