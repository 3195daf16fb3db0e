"""The SDK's client and handler over JetStream, in both versions and both encodings."""

from __future__ import annotations

from pathlib import Path

import pytest
from a2a import types
from a2a.client import ClientConfig
from a2a.helpers import new_text_message

from postroom.a2a import JetStreamA2AServer, SdkOperations, durable_interfaces, register
from postroom.a2a.nats.durable.lost import EndLostTask
from postroom.a2a.operations import Call
from postroom.a2a.rpc import RpcError
from tests.a2a.nats.durableagent import SUBJECT, open_desk
from tests.a2a.translation.agents import MESSAGE, TASK, Scripted

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("binding-durable-sdk")
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


@pytest.mark.parametrize(
    "call",
    [
        Call("1", "SendMessage", {}, task_id="t-1"),
        Call("1", "SendStreamingMessage", b"", binary=True, task_id="t-1"),
        Call("1", "message/send", {}, task_id="t-1"),
    ],
    ids=lambda call: call.method,
)
async def test_a_lost_call_is_answered_with_its_task_which_is_canceled(call: Call):
    handler = Scripted()
    answer = await EndLostTask(SdkOperations(handler))(call)
    assert isinstance(answer, bytes)
    assert isinstance(handler.asked, types.CancelTaskRequest)
    assert handler.asked.id == "t-1"
    if call.binary:
        assert types.StreamResponse.FromString(answer).task == TASK
    else:
        assert b'"id":"t-1"' in answer
        assert answer.startswith(b'{"task":{') is (call.method == "SendMessage")


async def test_a_lost_call_whose_task_nobody_knows_is_answered_with_an_error():
    operations = SdkOperations(Scripted(RuntimeError("no such task")))
    answer = await EndLostTask(operations)(Call("1", "SendMessage", {}, task_id="t-1"))
    assert isinstance(answer, RpcError)
    assert answer.about == {"taskId": "t-1"}
