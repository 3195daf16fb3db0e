"""Request handlers under the same test: the SDK's own, and ours."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils import to_stream_response
from a2a.utils.errors import TaskNotFoundError

from library.agents import Agent, Work
from library.front import message, states
from postroom_a2a.sdk.handling import AgentRequestHandler, MemoryTaskStore
from postroom_a2a.sdk.operations import Requester

PATIENCE = 20

CARD = AgentCard(
    name="poet",
    description="writes",
    version="1",
    supported_interfaces=[
        AgentInterface(
            url="http://agent.test/a2a", protocol_binding="JSONRPC", protocol_version="1.0"
        )
    ],
    capabilities=AgentCapabilities(
        streaming=True, push_notifications=True, extended_agent_card=True
    ),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[AgentSkill(id="write", name="write", description="writes", tags=["text"])],
)
PLAIN = AgentCard()
PLAIN.CopyFrom(CARD)
PLAIN.capabilities.CopyFrom(AgentCapabilities())


@dataclass
class Desk:
    """An agent, its handler, and who asks."""

    agent: Agent
    handler: Any
    user: str = field(default_factory=lambda: secrets.token_hex(8))
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def context(self) -> ServerCallContext:
        return ServerCallContext(user=Requester(self.user), state=dict(self.state))

    async def send(self, what: str | Message, **options: Any) -> Any:
        async with asyncio.timeout(PATIENCE):
            return await self.handler.on_message_send(asked(what, **options), self.context)

    async def stream(self, what: str | Message, **options: Any) -> list[Any]:
        """All that a stream shows."""
        events: list[Any] = []
        await self.streamed_into(events, what, **options)
        return events

    async def streamed_into(self, events: list[Any], what: str | Message, **options: Any) -> None:
        """Also what came before an error."""
        async with asyncio.timeout(PATIENCE):
            request = asked(what, **options)
            async with aclosing(self.handler.on_message_send_stream(request, self.context)) as all_:
                async for event in all_:
                    events.append(event)  # noqa: PERF401 (what came before an error counts)

    async def get(self, task: str, **options: Any) -> Task:
        return await self.handler.on_get_task(GetTaskRequest(id=task, **options), self.context)

    async def cancel(self, task: str) -> Task:
        async with asyncio.timeout(PATIENCE):
            return await self.handler.on_cancel_task(CancelTaskRequest(id=task), self.context)

    def subscribe(self, task: str) -> AsyncGenerator[Any]:
        return self.handler.on_subscribe_to_task(SubscribeToTaskRequest(id=task), self.context)

    async def follow(self, task: str) -> list[Any]:
        """All that a subscriber is shown."""
        async with asyncio.timeout(PATIENCE), aclosing(self.subscribe(task)) as events:
            return [event async for event in events]

    async def until(self, task: str, state: TaskState) -> Task:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    found = await self.get(task)
                    if found.status.state == state:
                        return found
                except TaskNotFoundError:
                    pass  # the SDK runs an agent before it has stored its task
                await asyncio.sleep(0.001)


def asked(what: str | Message, **options: Any) -> SendMessageRequest:
    said = message(what) if isinstance(what, str) else what
    return SendMessageRequest(message=said, configuration=options)


def shown(events: list[Any]) -> list[str]:
    """The states that a stream showed."""
    return states([to_stream_response(event) for event in events])


def kinds(events: list[Any]) -> list[str]:
    return [type(event).__name__ for event in events]


def reference(agent: Agent, **options: Any) -> DefaultRequestHandler:
    """The SDK's."""
    card = options.pop("agent_card", CARD)
    return DefaultRequestHandler(
        agent, options.pop("task_store", None) or InMemoryTaskStore(), card, **options
    )


def ours(agent: Agent, **options: Any) -> AgentRequestHandler:
    card = options.pop("agent_card", CARD)
    return AgentRequestHandler(agent, card, **options)


Made = Callable[..., AbstractAsyncContextManager[Desk]]


def opener(make: Callable[..., Any]) -> Made:
    @asynccontextmanager
    async def opened(
        work: Work | Agent, *, quiet: bool = False, **options: Any
    ) -> AsyncGenerator[Desk]:
        agent = work if isinstance(work, Agent) else Agent(work, quiet=quiet)
        desk = Desk(agent, make(agent, **options))
        try:
            yield desk
        finally:
            agent.gate.set()
            await desk.handler.aclose()

    return opened


BY_SDK, BY_US = opener(reference), opener(ours)
STORES = {"sdk": InMemoryTaskStore, "postroom": MemoryTaskStore}
