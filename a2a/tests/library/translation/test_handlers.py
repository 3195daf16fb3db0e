"""The same calls to an agent of our handler and to one of the SDK's own, in both versions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from a2a import types
from library.agents import Agent, chunks
from library.front import Front, message, ours, reference
from postroom_a2a.ecma_json import loads
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.operations import SdkOperations
from postroom_a2a.sdk.translation import OPERATIONS, V03, V10, Dialect

pytestmark = pytest.mark.anyio

SEND, STREAM = OPERATIONS["SendMessage"], OPERATIONS["SendStreamingMessage"]
BOTH = pytest.mark.parametrize("dialect", [V10, V03])


@pytest.fixture(params=[ours, reference], ids=["postroom", "sdk"])
async def front(request: pytest.FixtureRequest) -> AsyncIterator[Front]:
    async with request.param(Agent(chunks)) as front:
        yield front


def call(front: Front, dialect: Dialect, name: str, request: Any) -> Call:
    operation = OPERATIONS[name]
    params = dialect.write_params(operation, request)
    return Call("1", dialect.method(operation), params, caller=front.alice)


@BOTH
async def test_task_is_begun_read_and_not_canceled_twice(front: Front, dialect: Dialect):
    operations = SdkOperations(front.handler)
    asked = types.SendMessageRequest(message=message("go"))
    body = await operations.answer(call(front, dialect, "SendMessage", asked))
    task = dialect.read_result(SEND, loads(body)).task
    assert task.status.state == types.TaskState.TASK_STATE_COMPLETED

    get = call(front, dialect, "GetTask", types.GetTaskRequest(id=task.id))
    read = dialect.read_result(OPERATIONS["GetTask"], loads(await operations.answer(get)))
    assert read.artifacts == task.artifacts

    cancel = call(front, dialect, "CancelTask", types.CancelTaskRequest(id=task.id))
    with pytest.raises(RpcError) as caught:
        await operations.answer(cancel)
    assert caught.value.code == Code.TASK_NOT_CANCELABLE


@BOTH
async def test_stream_shows_the_task_to_its_end(front: Front, dialect: Dialect):
    asked = types.SendMessageRequest(message=message("go"))
    sent = call(front, dialect, "SendStreamingMessage", asked)
    async with aclosing(SdkOperations(front.handler).stream(sent)) as bodies:
        events = [dialect.read_result(STREAM, loads(body)) async for body in bodies]
    assert events[0].HasField("task")
    assert any(event.HasField("artifact_update") for event in events)
    assert events[-1].status_update.status.state == types.TaskState.TASK_STATE_COMPLETED


@BOTH
async def test_unknown_task_is_not_found(front: Front, dialect: Dialect):
    get = call(front, dialect, "GetTask", types.GetTaskRequest(id="nope"))
    with pytest.raises(RpcError) as caught:
        await SdkOperations(front.handler).answer(get)
    assert caught.value.code == Code.TASK_NOT_FOUND


@BOTH
async def test_required_member_that_is_missing_is_refused(front: Front, dialect: Dialect):
    said = types.Message(message_id="m-1", role=types.Role.ROLE_USER)
    sent = call(front, dialect, "SendMessage", types.SendMessageRequest(message=said))
    with pytest.raises(RpcError) as caught:
        await SdkOperations(front.handler).answer(sent)
    assert caught.value.code == Code.INVALID_PARAMS


def test_import_loads_neither_the_sdks_handlers_nor_its_client():
    program = (
        "import sys, postroom_a2a.sdk.operations, postroom_a2a.sdk.translation; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    heavy = {"a2a.server.request_handlers", "a2a.compat.v0_3", "a2a.client", "httpx"}
    assert not heavy & set(done.stdout.split())
