"""An agent behind the SDK's own JSON-RPC routes, called by the SDK's own client: by our engine, or by the SDK's."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from a2a.auth.user import UnauthenticatedUser, User
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.server.context import ServerCallContext
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
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils import to_stream_response
from a2a.utils.errors import TaskNotFoundError
from starlette.applications import Starlette
from starlette.requests import Request

from postroom.bus.nats import NatsBus
from postroom.errors import (
    BusDisconnected,
    Conflict,
    InvalidInput,
    NoResponders,
    NotFound,
    RequestTimeout,
)
from postroom.oldsdk.executors import SdkExecutor
from postroom.oldsdk.handler import TaskRequestHandler
from postroom.protocol.tasks import task_id
from postroom.tasks.engine import Ask, TaskEngine
from postroom.tasks.log import TaskLog
from postroom_a2a.messages import context_of
from postroom_a2a.sdk.users import Requester
from postroom_a2a.service import TaskPage, TaskQuery, TaskVersion
from postroom_a2a.times import parse_time
from tests.a2a.agents import Agent, text
from tests.a2a.desk import PATIENCE, Log
from tests.rig import Rig, new_uid

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


@dataclass
class LogService:
    """A `TaskService` that asks the log itself; `engine` is the worker's present start, if it runs."""

    log: Log
    engine: TaskEngine | None = None

    async def submit(self, message: dict[str, Any], requester: str) -> str:
        ask = Ask(message["messageId"], requester, message)
        task = task_id(self.log.worker, requester, ask.request)
        self.log.asks.setdefault(task, ask)
        if self.engine is not None:
            await self.engine.accept(self.log.asks[task])
        return task

    async def get(self, task: str, requester: str) -> TaskVersion:
        stored = await self.log.get(task)
        if stored.record.requester != requester:
            raise NotFound(f"no task {task}")
        return TaskVersion(stored.record.task, stored.sequence)

    async def list(self, query: TaskQuery, requester: str) -> TaskPage:
        asked = [task for task, ask in self.log.asks.items() if ask.requester == requester]
        found = [await self.get(task, requester) for task in asked]
        wanted = [version.task for version in found if matches(version, query)]
        wanted.sort(key=lambda task: (changed_at(task), task["id"]), reverse=True)
        if not (query.page or "0").isdigit():
            raise InvalidInput("no such page")
        first = int(query.page or 0)
        last = first + query.limit
        page = str(last) if last < len(wanted) else ""
        return TaskPage(wanted[first:last], len(wanted), page)

    async def cancel(self, task: str, requester: str) -> TaskVersion:
        assert self.engine is not None
        await self.engine.cancel(task, requester)
        return await self.get(task, requester)

    async def answer(self, task: str, message: dict[str, Any], requester: str) -> None:
        if not (await self.get(task, requester)).state.interrupted:
            raise Conflict("it waits for nothing")
        assert self.engine is not None
        await self.engine.answer(task, requester, message)

    async def follow(self, task: str, requester: str, after: int) -> AsyncGenerator[TaskVersion]:
        while True:
            try:
                records = await self.log.records(task)
            except (BusDisconnected, RequestTimeout, NoResponders):
                records = []
            for sequence, record in records:
                if sequence > after:
                    after = sequence
                    yield TaskVersion(record.task, sequence, record.event)
                    if record.state.terminal:
                        return
            await asyncio.sleep(0.01)


def matches(version: TaskVersion, query: TaskQuery) -> bool:
    task = version.task
    return (
        query.context in {"", context_of(task)}
        and query.state in {None, version.state}
        and changed_at(task) >= query.since
    )


def changed_at(task: dict[str, Any]) -> float:
    return parse_time(task["status"]["timestamp"])


class HeaderUser(DefaultServerCallContextBuilder):
    """Believes the header, as a front door that has checked it."""

    def build_user(self, request: Request) -> User:
        uid = request.headers.get("x-user", "")
        return Requester(uid) if uid else UnauthenticatedUser()


@dataclass
class Front:
    """What a test calls.

    Attributes:
        alice: whose client `client` is.
        service: of our engine; None for the SDK's.
    """

    agent: Agent
    handler: RequestHandler
    alice: str
    http: httpx.AsyncClient
    connect: Callable[..., Client]
    service: LogService | None = None
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = self.connect(self.alice)

    @property
    def ours(self) -> LogService:
        """Our engine's service."""
        assert self.service is not None
        return self.service

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

    async def subscribe(self, task: str) -> AsyncGenerator[StreamResponse]:
        """What a subscriber is shown, as it comes: the transport of the other calls gives streams whole."""
        context = ServerCallContext(user=Requester(self.alice))
        request = SubscribeToTaskRequest(id=task)
        async with aclosing(self.handler.on_subscribe_to_task(request, context)) as events:
            async for event in events:
                yield to_stream_response(event)

    async def error(self, method: str, **params: Any) -> int:
        """The error code of a call that the SDK's client would not even make."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self.http.post("http://agent.test/a2a", json=body)
        return answer.json()["error"]["code"]

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
async def serving(handler: RequestHandler, agent: Agent, **fields: Any) -> AsyncGenerator[Front]:
    """The handler behind the SDK's routes."""
    routes = create_jsonrpc_routes(handler, "/a2a", context_builder=HeaderUser())
    async with AsyncExitStack() as stack:
        transport = httpx.ASGITransport(Starlette(routes=routes))

        def connect(user: str, *, streaming: bool = True) -> Client:
            http = httpx.AsyncClient(transport=transport, headers={"x-user": user}, timeout=60)
            stack.push_async_callback(http.aclose)
            config = ClientConfig(httpx_client=http, streaming=streaming)
            return ClientFactory(config).create(CARD)

        alice = new_uid()
        headers = {"x-user": alice, "A2A-Version": "1.0"}
        async with httpx.AsyncClient(transport=transport, headers=headers) as http:
            yield Front(agent, handler, alice, http, connect, **fields)


@asynccontextmanager
async def reference(agent: Agent) -> AsyncGenerator[Front]:
    """The agent as the SDK runs it."""
    handler = DefaultRequestHandler(agent, InMemoryTaskStore(), CARD)
    async with serving(handler, agent) as front:
        yield front
    await handler.aclose()


@asynccontextmanager
async def start(
    service: LogService, bus: NatsBus, agent: Agent, **options: Any
) -> AsyncGenerator[SdkExecutor]:
    """One start of the worker: a run of its own, which takes over what it finds."""
    log, executor = service.log, SdkExecutor(agent, **options)
    run = secrets.token_hex(16)
    engine = TaskEngine(TaskLog(bus, log, worker=bus.uid, run=run), log, executor, worker=bus.uid)
    service.engine = engine
    for task, given in log.asks.items():
        stored = await log.get(task)
        if stored.sequence:
            engine.recover(task, stored.record.state)
        else:
            await engine.accept(given)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(engine.run())
        yield executor
        running.cancel()


@asynccontextmanager
async def durable(
    rig: Rig, agent: Agent, *, running: bool = True, **options: Any
) -> AsyncGenerator[Front]:
    """The agent as our engine runs it."""
    bus = await rig.agent()
    service = LogService(Log(rig, bus.uid))
    handler = TaskRequestHandler(service)
    async with AsyncExitStack() as stack:
        if running:
            await stack.enter_async_context(start(service, bus, agent, **options))
        yield await stack.enter_async_context(serving(handler, agent, service=service))
