"""A2A over gRPC: our server, called by the SDK's own client and by its bare stubs."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import pytest
import trustme
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.client import ClientCallContext
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageConfiguration,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskState,
    a2a_pb2_grpc,
)
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError, VersionNotSupportedError
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from library.agents import Agent, asks, chunks, text, waits
from library.front import CARD, artifacts, message, states
from postroom_a2a import AgentRequestHandler, SdkOperations
from postroom_a2a.errors import Forbidden, InvalidInput, Unauthorized
from postroom_a2a.operations import Incoming, Operations, Perform
from postroom_a2a.rpc import RpcError
from postroom_a2a.sdk.grpc import SERVICE, GrpcServer
from postroom_a2a.sdk.grpc_services import DETAILS, STATUS, status_of

pytestmark = pytest.mark.anyio

PATIENCE = 20.0
WORD = ("authorization", "Bearer alice")
VERSION = ("a2a-version", "1.0")
ALICE = (VERSION, WORD)


@dataclass
class Desk:
    """A server whose door knows agents by their tenant, and a caller by a word."""

    agents: dict[str, Operations]
    server: GrpcServer = field(init=False)
    seen: list[Incoming] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def door(self, incoming: Incoming, perform: Perform) -> None:
        self.seen.append(incoming)
        self.begun.set()
        if not incoming.authorization:
            raise Unauthorized("a bearer token is missing")
        if incoming.authorization == ["Bearer nobody"]:
            raise Forbidden("not you")
        if incoming.authorization == ["Bearer bad luck"]:
            raise ValueError("a secret of this server")
        try:
            await perform(self.agents[incoming.tenant], "alice")
        finally:
            self.ended.set()

    def card(self, tenant: str) -> AgentCard:
        url = f"127.0.0.1:{self.server.port}"
        there = AgentInterface(
            url=url, protocol_binding="GRPC", protocol_version="1.0", tenant=tenant
        )
        return AgentCard(
            name=tenant,
            supported_interfaces=[there],
            capabilities=AgentCapabilities(streaming=True),
        )

    def client(self, tenant: str = "poet", *, streaming: bool = True) -> Client:
        config = ClientConfig(
            grpc_channel_factory=grpc.aio.insecure_channel,
            supported_protocol_bindings=["GRPC"],
            streaming=streaming,
        )
        return ClientFactory(config).create(self.card(tenant))


def key(word: str = "alice") -> ClientCallContext:
    return ClientCallContext(service_parameters={"authorization": f"Bearer {word}"})


@asynccontextmanager
async def desk(**agents: Agent) -> AsyncGenerator[Desk]:
    handlers = {name: AgentRequestHandler(agent, CARD) for name, agent in agents.items()}
    served = Desk({name: SdkOperations(each) for name, each in handlers.items()})
    async with GrpcServer(served.door, "127.0.0.1:0") as served.server:
        yield served
    for each in handlers.values():
        await each.aclose()


async def said(
    client: Client, what: str, context: ClientCallContext | None = None, **fields: Any
) -> list[StreamResponse]:
    asked = SendMessageRequest(message=message(what, **fields))
    async with asyncio.timeout(PATIENCE):
        return [each async for each in client.send_message(asked, context=context or key())]


@asynccontextmanager
async def stub(at: Desk) -> AsyncGenerator[Any]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{at.server.port}") as channel:
        yield a2a_pb2_grpc.A2AServiceStub(channel)


async def test_a_message_its_stream_and_its_task_pass_whole():
    async with desk(poet=Agent(chunks)) as at, at.client() as client:
        events = await said(client, "a poem")
        assert states(events) == ["submitted", "working", "completed"]
        task = await client.get_task(GetTaskRequest(id=events[0].task.id), context=key())
        assert artifacts(task) == {"a": "one two"}
        assert task.history[0].parts[0].text == "a poem"
        page = await client.list_tasks(ListTasksRequest(), context=key())
        assert [each.id for each in page.tasks] == [task.id]
        assert page.total_size == 1


async def test_a_question_is_answered_and_a_task_canceled():
    async with desk(poet=Agent(asks)) as at, at.client(streaming=False) as client:
        (asked,) = await said(client, "a poem")
        assert asked.task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        (done,) = await said(client, "that one", task_id=asked.task.id)
        assert artifacts(done.task) == {"a": "that one"}
        (asked,) = await said(client, "another")
        canceled = await client.cancel_task(CancelTaskRequest(id=asked.task.id), context=key())
        assert canceled.status.state == TaskState.TASK_STATE_CANCELED


async def test_the_tenant_names_the_agent():
    async with desk(poet=Agent(chunks), sphinx=Agent(asks)) as at:
        async with at.client("sphinx") as client:
            events = await said(client, "which?")
        assert states(events)[-1] == "input_required"
        assert at.seen[0].tenant == "sphinx"


async def test_subscribing_shows_the_task_and_what_follows():
    agent = Agent(waits)
    async with desk(poet=agent) as at, stub(at) as service, asyncio.timeout(PATIENCE):
        now = SendMessageConfiguration(return_immediately=True)
        asked = SendMessageRequest(message=message("wait"), configuration=now, tenant="poet")
        first = (await service.SendMessage(asked, metadata=ALICE)).task
        await agent.begun.wait()
        seen: list[StreamResponse] = []
        request = SubscribeToTaskRequest(id=first.id, tenant="poet")
        async for event in service.SubscribeToTask(request, metadata=ALICE):
            seen.append(event)
            agent.gate.set()
    assert seen[0].HasField("task")
    assert states(seen)[-1] == "completed"


@pytest.mark.requirement("a2a-http")
@pytest.mark.parametrize("version", ["0.3", "99.0", "", "1", None])
async def test_a_version_that_is_not_spoken_is_refused(version: str | None):
    stated = () if version is None else (("a2a-version", version),)
    async with desk(poet=Agent(chunks)) as at, stub(at) as service:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await service.SendMessage(
                SendMessageRequest(message=message("hello"), tenant="poet"),
                metadata=(*stated, WORD),
            )
        assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert reason_of(refused.value) == "VERSION_NOT_SUPPORTED"


async def test_a_patch_of_the_version_changes_nothing():
    async with desk(poet=Agent(chunks)) as at, stub(at) as service:
        for version in ("1.0.1", "1.0"):
            answer = await service.SendMessage(
                SendMessageRequest(message=message("hello"), tenant="poet"),
                metadata=(("a2a-version", version), WORD),
            )
            assert answer.task.status.state == TaskState.TASK_STATE_COMPLETED


def reason_of(error: grpc.aio.AioRpcError) -> str:
    trailing = dict(error.trailing_metadata() or ())
    status = Status.FromString(trailing[DETAILS])
    assert (status.code, status.message) == (error.code().value[0], error.details())
    info = ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "a2a-protocol.org"
    return info.reason


async def test_errors_come_as_a_status_that_the_sdk_reads():
    async with desk(poet=Agent(chunks)) as at, at.client() as client:
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="none"), context=key())
        with pytest.raises(InvalidParamsError):
            await client.list_tasks(ListTasksRequest(page_size=-1), context=key())
        stating = ClientCallContext(
            service_parameters={"authorization": "Bearer alice", "a2a-version": "7.0"}
        )
        with pytest.raises(VersionNotSupportedError):
            await client.get_task(GetTaskRequest(id="none"), context=stating)


@pytest.mark.parametrize(
    "word, code",
    [
        ("", grpc.StatusCode.UNAUTHENTICATED),
        ("nobody", grpc.StatusCode.PERMISSION_DENIED),
        ("bad luck", grpc.StatusCode.INTERNAL),
    ],
)
async def test_a_caller_who_is_not_let_in_learns_no_more(word: str, code: grpc.StatusCode):
    async with desk(poet=Agent(chunks)) as at, stub(at) as service:
        metadata = (("authorization", f"Bearer {word}"),) if word else ()
        for ask in (
            service.GetTask(GetTaskRequest(id="x", tenant="poet"), metadata=metadata),
            service.SubscribeToTask(
                SubscribeToTaskRequest(id="x", tenant="poet"), metadata=metadata
            ).read(),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask
            assert refused.value.code() == code
            assert "secret" not in str(refused.value.details())


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_call_that_is_ended_is_answered_at_once(streaming: bool):
    agent = Agent(waits)
    async with desk(poet=agent) as at, at.client(streaming=streaming) as client:
        sending = asyncio.create_task(said(client, "wait"))
        await asyncio.wait_for(agent.begun.wait(), PATIENCE)
        at.seen[0].end(Unauthorized("the API key is not valid any more"))
        with pytest.raises(Exception, match="UNAUTHENTICATED"):
            await asyncio.wait_for(sending, PATIENCE)
        assert at.ended.is_set() is streaming  # what a call has begun goes on, a stream does not
        agent.gate.set()
        await asyncio.wait_for(at.ended.wait(), PATIENCE)
        tasks = await client.list_tasks(ListTasksRequest(), context=key())
        assert len(tasks.tasks) == 1


async def test_a_stream_ends_with_its_caller():
    agent = Agent(waits)
    async with desk(poet=agent) as at, stub(at) as service, asyncio.timeout(PATIENCE):
        asked = SendMessageRequest(message=message("wait"), tenant="poet")
        events = service.SendStreamingMessage(asked, metadata=ALICE)
        await events.read()
        events.cancel()
        await at.ended.wait()
        agent.gate.set()


async def test_a_stream_that_nobody_reads_is_given_up():
    async def talks(_: Any, __: Any, ___: Any, updater: TaskUpdater) -> None:
        for number in range(40):
            await updater.add_artifact(text("x" * 1024 * 1024), artifact_id=str(number))
        await updater.complete()

    asked = SendMessageRequest(message=message("talk"), tenant="poet")
    async with (
        desk(poet=Agent(talks)) as at,
        GrpcServer(at.door, "127.0.0.1:0", patience=0.2) as at.server,
        stub(at) as service,
        asyncio.timeout(PATIENCE),
    ):
        events = service.SendStreamingMessage(asked, metadata=ALICE)
        await events.read()
        await at.ended.wait()
        with pytest.raises(grpc.aio.AioRpcError):
            await rest(events)
        # Others are still served.
        await service.ListTasks(ListTasksRequest(tenant="poet"), metadata=ALICE)


async def rest(events: Any) -> None:
    while await events.read() is not grpc.aio.EOF:
        pass


async def test_the_deadline_of_a_call_ends_it():
    agent = Agent(waits)
    async with desk(poet=agent) as at, stub(at) as service:
        with pytest.raises(grpc.aio.AioRpcError) as late:
            await service.SendMessage(
                SendMessageRequest(message=message("wait"), tenant="poet"),
                metadata=ALICE,
                timeout=1.0,
            )
        assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(at.ended.wait(), PATIENCE)
        agent.gate.set()


@asynccontextmanager
async def unsaid(server: GrpcServer, word: str, most: int) -> AsyncGenerator[list[Any]]:
    """Calls whose requests never come, each by a connection of its own."""
    metadata = (VERSION, ("authorization", f"Bearer {word}"))
    async with AsyncExitStack() as stack:
        calls = []
        for _ in range(most):
            made = grpc.aio.insecure_channel(
                f"127.0.0.1:{server.port}", options=[("grpc.use_local_subchannel_pool", 1)]
            )
            channel = await stack.enter_async_context(made)
            calls.append(channel.stream_unary(f"/{SERVICE}/SendMessage")(metadata=metadata))
        yield calls


async def ended(call: Any) -> grpc.StatusCode:
    async with asyncio.timeout(PATIENCE):
        return await call.code()


async def test_calls_whose_requests_do_not_come_end_and_keep_nobody_out():
    async with (
        desk(poet=Agent(chunks)) as at,
        GrpcServer(at.door, "127.0.0.1:0", most_calls=4, reading=1.0) as at.server,
        stub(at) as service,
        unsaid(at.server, "mallory", 12) as calls,
    ):
        ends = asyncio.as_completed([ended(each) for each in calls])
        codes = [await next(ends)]
        await service.ListTasks(ListTasksRequest(tenant="poet"), metadata=ALICE, timeout=PATIENCE)
        codes += [await each for each in ends]
        assert codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED) == 8
        assert codes.count(grpc.StatusCode.DEADLINE_EXCEEDED) == 4
        assert at.seen[0].tenant == "poet"


async def test_who_is_not_greeted_is_refused_before_the_request_is_read():
    async def greet(incoming: Incoming) -> None:
        if incoming.authorization != ["Bearer alice"]:
            raise Unauthorized("who are you?")

    async with (
        desk(poet=Agent(chunks)) as at,
        GrpcServer(at.door, "127.0.0.1:0", most_calls=1, greet=greet) as at.server,
        stub(at) as service,
        unsaid(at.server, "mallory", 3) as calls,
    ):
        assert {await ended(each) for each in calls} == {grpc.StatusCode.UNAUTHENTICATED}
        await service.ListTasks(ListTasksRequest(tenant="poet"), metadata=ALICE)


async def test_bytes_that_are_no_request_are_refused():
    async with (
        desk(poet=Agent(chunks)) as at,
        grpc.aio.insecure_channel(f"127.0.0.1:{at.server.port}") as channel,
    ):
        broken = channel.unary_unary(f"/{SERVICE}/SendMessage")(b"\xff\xff", metadata=ALICE)
        assert await ended(broken) is grpc.StatusCode.INVALID_ARGUMENT
        empty = channel.stream_unary(f"/{SERVICE}/SendMessage")(iter(()), metadata=ALICE)
        assert await ended(empty) is grpc.StatusCode.INVALID_ARGUMENT
        assert at.seen == []


async def test_a_request_that_is_too_large_is_refused():
    async with desk(poet=Agent(chunks)) as at:
        async with (
            GrpcServer(at.door, "127.0.0.1:0", most_bytes=1000) as at.server,
            at.client() as client,
        ):
            with pytest.raises(Exception, match="RESOURCE_EXHAUSTED"):
                await said(client, "x" * 2000)
        assert at.seen == []


async def test_an_address_that_is_taken_is_an_error():
    async with desk() as at:
        with pytest.raises(InvalidInput, match="cannot listen"):
            async with GrpcServer(at.door, f"127.0.0.1:{at.server.port}"):
                pass


async def test_a_certificate_is_shown_and_a_new_one_taken_without_a_restart():
    authority = trustme.CA()
    shown = [authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.bytes()]
    trusted = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    async with (
        desk(poet=Agent(chunks)) as at,
        GrpcServer(at.door, "127.0.0.1:0", certificate=lambda: shown[-1]) as at.server,
    ):
        for _ in range(2):
            address = f"127.0.0.1:{at.server.port}"
            async with grpc.aio.secure_channel(address, trusted) as channel:
                service = a2a_pb2_grpc.A2AServiceStub(channel)
                await service.ListTasks(ListTasksRequest(tenant="poet"), metadata=ALICE)
            authority = trustme.CA()
            fresh = authority.issue_cert("127.0.0.1")
            shown.append(fresh.private_key_and_cert_chain_pem.bytes())
            trusted = grpc.ssl_channel_credentials(authority.cert_pem.bytes())


@pytest.mark.parametrize("code", STATUS, ids=lambda code: code.name)
def test_every_error_has_a_status_with_its_reason(code: Any):
    answered, status = status_of(RpcError(code, "no\nnever", task=secrets.token_hex(4)))
    assert answered is STATUS[code]
    info = ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.reason == code.name
    assert "\n" not in status.message


def test_details_without_a_type_in_protobuf_are_left_out():
    _, status = status_of(RpcError(-32001, "no", [{"@type": "x/none"}, {"a": 1}, 3, None]))
    assert list(status.details) == []
    assert status_of(RpcError(-31000, "no", {"a": 1}))[0] is grpc.StatusCode.UNKNOWN
