"""The SDK's client and handler over JetStream, in both versions and both encodings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from a2a.client import ClientConfig
from a2a.helpers import new_text_message
from a2a.utils.errors import TaskNotFoundError

from a2a import types
from library.nats.durableagent import SUBJECT, open_desk
from library.translation.agents import MESSAGE, TASK, Scripted
from postroom_a2a import JetStreamA2AServer, SdkOperations, durable_interfaces, register
from postroom_a2a.operations import Call

pytestmark = pytest.mark.anyio

SAID = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
SAID_03 = {"kind": "message", "messageId": "m", "role": "user", "parts": []}


@pytest.mark.both_connections
@pytest.mark.requirement("core-sdk-client")
@pytest.mark.parametrize("interface", durable_interfaces(SUBJECT), ids=lambda i: i.protocol_version)
async def test_the_sdks_client_calls_the_sdks_handler_over_jetstream(
    tmp_path: Path, interface: types.AgentInterface
):
    async with open_desk(tmp_path) as desk:
        server = JetStreamA2AServer(await desk.connect(), subject=SUBJECT, handler=Scripted())
        await desk.stack.enter_async_context(server)
        for streaming in (False, True):
            card = types.AgentCard(
                capabilities=types.AgentCapabilities(streaming=streaming),
                supported_interfaces=[interface],
            )
            config = ClientConfig(streaming=streaming)
            client = register(config, await desk.connect()).create(card)
            message = new_text_message("hi", role=types.Role.ROLE_USER)
            request = types.SendMessageRequest(message=message)
            events = [event async for event in client.send_message(request)]
            if streaming:
                assert [event.WhichOneof("payload") for event in events] == [
                    "task",
                    "artifact_update",
                    "status_update",
                ]
            else:
                assert [event.message.parts[0].text for event in events] == [MESSAGE.parts[0].text]
            task = await client.get_task(types.GetTaskRequest(id="t-1"))
            assert task.id == TASK.id
            await client.close()


@pytest.mark.requirement("a2a-http")
async def test_a_request_to_an_agent_that_does_not_run_is_done_when_it_runs(tmp_path: Path):
    async with open_desk(tmp_path) as desk:
        first = JetStreamA2AServer(await desk.connect(), subject=SUBJECT, handler=Scripted())
        async with first:
            pass  # the streams are there now, and nobody who reads them
        js = await desk.jetstream()
        card = types.AgentCard(supported_interfaces=durable_interfaces(SUBJECT))
        client = register(ClientConfig(streaming=False), await desk.connect()).create(card)

        async def ask() -> list[types.StreamResponse]:
            message = new_text_message("hi", role=types.Role.ROLE_USER)
            request = types.SendMessageRequest(message=message)
            return [event async for event in client.send_message(request)]

        asked = asyncio.create_task(ask())
        async with asyncio.timeout(10):
            # A stream gives no sign of what it stores.
            while not (await js.api("STREAM.INFO.A2A_REQUESTS"))["state"]["messages"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        server = JetStreamA2AServer(await desk.connect(), subject=SUBJECT, handler=Scripted())
        await desk.stack.enter_async_context(server)
        assert [event.message.parts[0].text for event in await asked] == [MESSAGE.parts[0].text]
        await client.close()


@pytest.mark.parametrize(
    "call",
    [
        Call("1", "SendMessage", {"message": SAID}, task_id="t-1"),
        Call("1", "SendStreamingMessage", b"", binary=True, task_id="t-1"),
        Call("1", "message/send", {"message": SAID_03}, task_id="t-1"),
    ],
    ids=lambda call: call.method,
)
async def test_a_lost_call_is_answered_with_its_task_which_is_canceled(call: Call):
    handler = Scripted()
    answer = await SdkOperations(handler).lost(call)
    assert isinstance(answer, bytes)
    assert isinstance(handler.asked, types.CancelTaskRequest)
    assert handler.asked.id == "t-1"
    if call.binary:
        assert types.StreamResponse.FromString(answer).task == TASK
    else:
        assert b'"id":"t-1"' in answer
        assert answer.startswith(b'{"task":{') is (call.method == "SendMessage")


async def test_a_lost_call_whose_task_nobody_knows_has_no_result():
    operations = SdkOperations(Scripted(TaskNotFoundError()))
    assert await operations.lost(Call("1", "SendMessage", {"message": SAID}, task_id="t-1")) is None


async def test_a_lost_call_that_answers_a_task_is_about_that_task():
    handler = Scripted()
    call = Call("1", "SendMessage", {"message": {**SAID, "taskId": "t-0"}}, task_id="t-1")
    await SdkOperations(handler).lost(call)
    assert handler.asked.id == call.task_id == "t-0"
