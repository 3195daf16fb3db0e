"""The SDK's client over NATS: made by its factory from a card, in every form of the binding on core NATS."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from a2a.client import Client, ClientConfig, ClientFactory
from a2a.client.base_client import BaseClient
from a2a.client.client import ClientCallContext
from a2a.client.errors import A2AClientError, A2AClientTimeoutError
from a2a.utils.errors import TaskNotFoundError, UnsupportedOperationError
from nats.aio.client import Client as Connection

from a2a import types
from library.nats.agent import SUBJECT, TIMEOUT, connected
from library.servers import open_server
from library.translation.agents import TASK, Scripted
from postroom_a2a import NatsA2AServer, core_interfaces, errors, register
from postroom_a2a.binding.subjects import BINDINGS, CORE, CORE_BINARY
from postroom_a2a.sdk import transport
from postroom_a2a.sdk.errors import CallTimeoutError

pytestmark = pytest.mark.anyio

FORMS = [(CORE_BINARY, "1.0"), (CORE, "1.0"), (CORE, "0.3")]
MESSAGE = types.Message(message_id="m-1", role=types.Role.ROLE_USER, parts=[types.Part(text="hi")])


class Waiting(Scripted):
    """A handler whose streams stand after the first events, and that keeps what was cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled = asyncio.Queue[str]()
        self.ended = asyncio.Event()

    async def _stream(self, params: Any, context: Any) -> AsyncGenerator[Any]:
        try:
            yield TASK
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def on_cancel_task(self, params: Any, context: Any):
        self.cancelled.put_nowait(params.id)
        return TASK

    async def on_get_task(self, params: Any, context: Any):
        await asyncio.Event().wait()


def card(binding: str, version: str, **more: Any) -> types.AgentCard:
    """A card with one interface."""
    return types.AgentCard(
        name="Plain",
        capabilities=types.AgentCapabilities(streaming=True, extended_agent_card=True),
        supported_interfaces=[
            interface
            for interface in core_interfaces(SUBJECT)
            if (interface.protocol_binding, interface.protocol_version) == (binding, version)
        ],
        **more,
    )


@asynccontextmanager
async def client_of(
    folder: Path,
    handler: Scripted,
    binding: str = CORE,
    version: str = "1.0",
    **options: Any,
) -> AsyncGenerator[tuple[Client, Connection]]:
    async with (
        open_server(folder, jetstream=False) as url,
        connected(url) as serving,
        connected(url) as calling,
        NatsA2AServer(serving, subject=SUBJECT, handler=handler, drain=0.1),
    ):
        factory = register(ClientConfig(), calling, **options)
        async with factory.create(card(binding, version)) as client:
            yield client, calling


@pytest.mark.requirement("core-sdk-client")
@pytest.mark.parametrize("binding, version", FORMS)
async def test_every_operation_answers_in_every_form(tmp_path: Path, binding: str, version: str):
    handler = Scripted()
    async with client_of(tmp_path, handler, binding, version) as (client, _):
        send = types.SendMessageRequest(message=MESSAGE)
        sent = [event async for event in client.send_message(send)]
        followed = [e async for e in client.subscribe(types.SubscribeToTaskRequest(id="t-1"))]
        assert (await client.get_task(types.GetTaskRequest(id="t-1"))).id == "t-1"
        assert (await client.cancel_task(types.CancelTaskRequest(id="t-1"))).id == "t-1"
        config = types.TaskPushNotificationConfig(task_id="t-1", url="https://example.invalid/cb")
        assert (await client.create_task_push_notification_config(config)).id == "p-1"
        ask = types.GetTaskPushNotificationConfigRequest(task_id="t-1", id="p-1")
        assert (await client.get_task_push_notification_config(ask)).id == "p-1"
        every = types.ListTaskPushNotificationConfigsRequest(task_id="t-1")
        assert len((await client.list_task_push_notification_configs(every)).configs) == 1
        gone = types.DeleteTaskPushNotificationConfigRequest(task_id="t-1", id="p-1")
        await client.delete_task_push_notification_config(gone)
        shown = await client.get_extended_agent_card(types.GetExtendedAgentCardRequest())
        assert shown.name == "Echo"
        if version == "1.0":
            assert len((await client.list_tasks(types.ListTasksRequest())).tasks) == 1
        else:
            with pytest.raises(UnsupportedOperationError):
                await client.list_tasks(types.ListTasksRequest())
    kinds = ["task", "artifact_update", "status_update"]
    assert [event.WhichOneof("payload") for event in sent] == kinds
    assert [event.WhichOneof("payload") for event in followed] == kinds


@pytest.mark.requirement("core-sdk-client")
@pytest.mark.parametrize("binding, version", FORMS)
async def test_an_answered_error_is_the_sdk_s_type(tmp_path: Path, binding: str, version: str):
    handler = Scripted(TaskNotFoundError("Task not found: nope"))
    async with client_of(tmp_path, handler, binding, version) as (client, _):
        with pytest.raises(TaskNotFoundError, match="nope"):
            await client.get_task(types.GetTaskRequest(id="nope"))
        with pytest.raises(TaskNotFoundError, match="nope"):
            _ = [e async for e in client.subscribe(types.SubscribeToTaskRequest(id="nope"))]


@pytest.mark.requirement("core-busy-told")
@pytest.mark.parametrize("binding, version", FORMS)
async def test_a_time_out_is_the_same_error_where_the_server_notices_it_first(
    tmp_path: Path, binding: str, version: str, monkeypatch: pytest.MonkeyPatch
):
    clock = SimpleNamespace(time=lambda: time.time() - 60)  # so the server's is ahead
    monkeypatch.setattr(transport, "time", clock)
    async with client_of(tmp_path, Waiting(), binding, version) as (client, _):
        with pytest.raises(CallTimeoutError, match="deadline"):
            await client.get_task(
                types.GetTaskRequest(id="t-1"), context=ClientCallContext(timeout=TIMEOUT)
            )


async def test_a_call_that_is_not_answered_raises_the_sdk_s_error_and_postroom_s(tmp_path: Path):
    async with client_of(tmp_path, Waiting()) as (client, connection):
        with pytest.raises(A2AClientTimeoutError) as late:
            await client.get_task(
                types.GetTaskRequest(id="t-1"), context=ClientCallContext(timeout=0.05)
            )
        assert isinstance(late.value, errors.RequestTimeout)
        message = types.Message(parts=[types.Part(text="x" * connection.max_payload)])
        with pytest.raises(A2AClientError) as large:
            _ = [e async for e in client.send_message(types.SendMessageRequest(message=message))]
        assert isinstance(large.value, errors.MessageTooLarge)
        lonely = card(CORE, "1.0")
        lonely.supported_interfaces[0].url = "nats://a2a.agent.nobody.rpc"
        nobody = register(ClientConfig(), connection).create(lonely)
        with pytest.raises(A2AClientError) as absent:
            await nobody.get_task(types.GetTaskRequest(id="t-1"))
        assert isinstance(absent.value, errors.NoResponders)
        with pytest.raises(A2AClientError) as unheard:
            _ = [e async for e in nobody.subscribe(types.SubscribeToTaskRequest(id="t-1"))]
        assert isinstance(unheard.value, errors.NoResponders)


@pytest.mark.parametrize("version, stated", [("1.0", "1.0"), ("0.3", None)])
async def test_service_parameters_and_the_version_are_told(
    tmp_path: Path, version: str, stated: str | None
):
    handler = Scripted()
    async with client_of(tmp_path, handler, CORE, version) as (client, _):
        context = ClientCallContext(service_parameters={"A2A-Extensions": "urn:x", "k": "v"})
        await client.get_task(types.GetTaskRequest(id="t-1"), context=context)
    headers = handler.context.state["headers"]
    assert (headers["k"], headers.get("A2A-Version")) == ("v", stated)
    assert handler.context.requested_extensions == {"urn:x"}


@pytest.mark.requirement("core-busy-told")
@pytest.mark.parametrize("cancels", [True, False])
async def test_an_abandoned_stream_cancels_its_task_only_if_that_is_asked_for(
    tmp_path: Path, cancels: bool
):
    handler = Waiting()
    async with client_of(tmp_path, handler, cancel_abandoned=cancels) as (client, _):
        assert isinstance(client, BaseClient)
        send = types.SendMessageRequest(message=MESSAGE)
        async with aclosing(client._transport.send_message_streaming(send)) as events:
            await anext(events)
        await asyncio.wait_for(handler.ended.wait(), TIMEOUT)
        if cancels:
            assert await asyncio.wait_for(handler.cancelled.get(), TIMEOUT) == "t-1"
    assert handler.cancelled.empty()


async def test_registering_keeps_what_the_factory_had_and_asks_nothing_of_the_network(
    tmp_path: Path,
):
    async with open_server(tmp_path, jetstream=False) as url, connected(url) as connection:
        config = ClientConfig()
        factory = ClientFactory(config)
        assert register(factory, connection) is factory
        assert config.supported_protocol_bindings == ["JSONRPC", *BINDINGS]
        card_ = types.AgentCard(
            supported_interfaces=[
                types.AgentInterface(protocol_binding="JSONRPC", url="http://127.0.0.1:1")
            ]
        )
        async with factory.create(card_):
            pass


async def test_a_card_that_wants_a_sender_gets_calls_with_the_sender_s_token(tmp_path: Path):
    handler = Scripted()
    async with (
        open_server(tmp_path, jetstream=False) as url,
        connected(url) as serving,
        connected(url) as calling,
        NatsA2AServer(
            serving,
            subject="worker.w1.rpc.*",
            handler=handler,
            admit=lambda frame: (
                frame.subject.rpartition(".")[2] if frame.reply.startswith("_I.me.w1.") else None
            ),
            inbox=lambda caller: f"_I.w1.{caller}.acks",
        ),
    ):
        extension = types.AgentExtension(uri="urn:postroom:a2a:sender-token:1", required=True)
        agent = types.AgentCard(
            capabilities=types.AgentCapabilities(streaming=True, extensions=[extension]),
            supported_interfaces=core_interfaces("worker.w1.rpc"),
        )
        with pytest.raises(errors.InvalidInput):
            register(ClientConfig(), calling).create(agent)
        async with register(ClientConfig(), calling, sender="me").create(agent) as client:
            await client.get_task(types.GetTaskRequest(id="t-1"))
            events = [e async for e in client.subscribe(types.SubscribeToTaskRequest(id="t-1"))]
    assert handler.context.user.user_name == "me"
    assert len(events) == 3
