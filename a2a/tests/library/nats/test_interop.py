"""A TypeScript peer of the wire against ours, in both directions, method by method and byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from a2a.client.errors import A2AClientError
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError

from a2a import types
from library.nats.agent import TIMEOUT, connected
from library.nats.rawpeer import METHODS, STREAMS, AnsweredError, RawClient, RawServer, wire
from library.servers import open_server
from library.translation.agents import Scripted
from library.translation.golden import COMPLETE, ERRORS, EVENTS, REQUESTS, RESPONSES
from postroom_a2a import CoreCaller, CoreServer, NatsA2ATransport, SdkOperations
from postroom_a2a.sdk.translation import OPERATIONS, V03, operation_of

pytestmark = pytest.mark.anyio

SUBJECT = "a2a.agent.echo.rpc"
ANSWERS = {name: json.loads(payload)["result"] for name, payload in RESPONSES}
FOUND = [json.loads(payload)["response"]["result"] for payload in EVENTS[:5]]

PARAMS: dict[str, Any] = {
    json.loads(payload)["request"]["method"]: json.loads(payload)["request"].get("params")
    for _, payload in REQUESTS
} | {
    "tasks/pushNotificationConfig/get": {"id": "t-1"},
    "tasks/pushNotificationConfig/list": {"id": "t-1"},
}
"""Of each method, as the TypeScript client sends them."""


def given(name: str) -> Any:
    """What the handler gives so that the golden answer comes out."""
    message = V03.read_result(OPERATIONS[name], ANSWERS[name])
    if isinstance(message, types.SendMessageResponse):
        return getattr(message, str(message.WhichOneof("payload")))
    return message


def event(value: Any) -> Any:
    """An event as a handler gives it."""
    message = V03.read_result(OPERATIONS["SendStreamingMessage"], value)
    return getattr(message, message.WhichOneof("payload"))


@asynccontextmanager
async def served(folder: Path, handler: Scripted) -> AsyncGenerator[RawClient]:
    """The TypeScript client of our server."""
    async with (
        open_server(folder, jetstream=False) as url,
        connected(url) as serving,
        CoreServer(serving, SUBJECT, SdkOperations(handler)),
        wire(url) as peer,
    ):
        yield RawClient(peer, SUBJECT)


# ── their client, our server ─────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("a2a-http-versions")
@pytest.mark.parametrize("name, answer", RESPONSES)
async def test_the_bytes_of_their_call_are_answered_with_the_bytes_of_their_server(
    tmp_path: Path, name: str, answer: str
):
    call_id = json.loads(answer)["id"]
    asked = next(
        payload
        for each, payload in REQUESTS
        if each == name and json.loads(payload)["request"]["id"] == call_id
    )
    async with served(tmp_path, Scripted(given(name))) as client:
        received = await client.ask(asked.encode())
    assert received.payload.decode() == answer
    assert received.headers == b""


@pytest.mark.requirement("a2a-http-versions")
async def test_the_bytes_of_a_stream_are_those_of_their_server(tmp_path: Path):
    asked = next(payload for name, payload in REQUESTS if name == "SendStreamingMessage")
    handler = Scripted(events=[event(value) for value in FOUND])
    async with served(tmp_path, handler) as client:
        sid, queue = await client._peer.subscribe("_INBOX.golden")
        client._peer.publish(SUBJECT, asked.encode(), "_INBOX.golden")
        payloads = [(await asyncio.wait_for(queue.get(), TIMEOUT)).payload for _ in range(6)]
        client._peer.unsubscribe(sid)
    assert [payload.decode() for payload in payloads] == [*EVENTS[:5], COMPLETE]


@pytest.mark.requirement("a2a-http-versions")
@pytest.mark.parametrize("answer", ERRORS)
async def test_the_bytes_of_an_error_are_those_of_their_server(tmp_path: Path, answer: str):
    said = json.loads(answer)
    asked = next(p for _, p in REQUESTS if json.loads(p)["request"]["id"] == said["id"])
    kind = {-32001: TaskNotFoundError, -32002: TaskNotCancelableError}[said["error"]["code"]]
    async with served(tmp_path, Scripted(kind(said["error"]["message"]))) as client:
        assert (await client.ask(asked.encode())).payload.decode() == answer


@pytest.mark.requirement("a2a-http-versions")
@pytest.mark.parametrize("method", METHODS)
async def test_their_client_reads_what_our_server_answers_to_each_method(
    tmp_path: Path, method: str
):
    handler = Scripted()
    async with served(tmp_path, handler) as client:
        if method in STREAMS:
            results = [each async for each in client.stream(method, PARAMS[method])]
        else:
            results = [await client.call(method, PARAMS[method])]
    found = operation_of(method)
    assert found is not None
    operation, dialect = found
    for result in results:
        assert dialect.read_result(operation, result) is not None or operation.result is None
    assert [each["kind"] for each in results if method in STREAMS] == (
        ["task", "artifact-update", "status-update"] if method in STREAMS else []
    )


@pytest.mark.requirement("a2a-http-versions")
@pytest.mark.parametrize("method", METHODS)
async def test_their_client_is_told_each_error_with_its_code(tmp_path: Path, method: str):
    async with served(tmp_path, Scripted(TaskNotFoundError("Task not found: nope"))) as client:
        params = PARAMS[method]
        with pytest.raises(AnsweredError) as refused:
            await (client.follow if method in STREAMS else client.call)(method, params)
    assert (refused.value.code, refused.value.message) == (-32001, "Task not found: nope")
    assert refused.value.data is None


async def test_service_parameters_of_their_client_reach_the_handler(tmp_path: Path):
    handler = Scripted()
    parameters = {"X-A2A-Extensions": "urn:a, urn:b", "Authorization": "Bearer x"}
    async with served(tmp_path, handler) as client:
        await client.call("tasks/get", {"id": "t-1"}, parameters=parameters)
    assert handler.context.requested_extensions == {"urn:a", "urn:b"}
    assert handler.context.state["headers"]["Authorization"] == "Bearer x"


async def test_a_method_of_a_later_version_is_unknown_in_neither_and_a_made_up_one_in_both(
    tmp_path: Path,
):
    async with served(tmp_path, Scripted()) as client:
        with pytest.raises(AnsweredError) as refused:
            await client.call("tasks/list", {})
    assert refused.value.code == -32601


# ── our client, their server ─────────────────────────────────────────────────────────────────────────


def answered(method: str, params: Any) -> Any:
    """What the TypeScript server gives."""
    found = operation_of(method)
    assert found is not None
    if method in STREAMS:
        return FOUND
    match found[0].name:
        case "GetTaskPushNotificationConfig":
            return ANSWERS["CreateTaskPushNotificationConfig"]
        case "ListTaskPushNotificationConfigs":
            return [ANSWERS["CreateTaskPushNotificationConfig"]]
        case "GetExtendedAgentCard":
            return {
                "protocolVersion": "0.3.0",
                "name": "Echo",
                "description": "d",
                "url": "nats://a2a.agent.echo.rpc",
                "preferredTransport": "NATS",
                "version": "1",
                "capabilities": {"streaming": True},
                "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"],
                "skills": [],
            }
    return ANSWERS[found[0].name]


@asynccontextmanager
async def calling(folder: Path, answer: Any) -> AsyncGenerator[tuple[NatsA2ATransport, RawServer]]:
    """Our transport in A2A 0.3, to the TypeScript server."""
    async with (
        open_server(folder, jetstream=False) as url,
        connected(url) as client,
        wire(url) as peer,
        RawServer(peer, answer).serving(SUBJECT) as server,
        NatsA2ATransport(CoreCaller(client, SUBJECT), dialect=V03) as transport,
    ):
        yield transport, server


@pytest.mark.requirement("a2a-http-versions")
@pytest.mark.parametrize("method", METHODS)
async def test_our_client_reads_what_their_server_answers_and_sends_its_bytes_but_for_the_id(
    tmp_path: Path, method: str
):
    found = operation_of(method)
    assert found is not None
    operation = found[0]
    request = V03.read_params(operation, PARAMS[method])
    async with calling(tmp_path, answered) as (transport, server):
        if method in STREAMS:
            call = {"message/stream": transport.send_message_streaming}.get(
                method, transport.subscribe
            )
            results = [each async for each in call(request)]
            assert [each.WhichOneof("payload") for each in results] == [
                "task", "status_update", "artifact_update", "artifact_update", "status_update",
            ]  # fmt: skip
        else:
            result = await getattr(transport, NAMES[operation.name])(request)
            assert V03.write_result(operation, result) is not None or operation.result is None
    sent = json.loads(server.requests[0])
    call_id = sent["request"]["id"]
    assert isinstance(call_id, str)
    expected: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if PARAMS[method] is not None:
        expected["params"] = V03.write_params(operation, request)
    expected["id"] = call_id
    frame = {"protocol": "a2a-nats/1", "request": expected}
    written = json.dumps(frame, separators=(",", ":"), ensure_ascii=False)
    assert server.requests[0].decode() == written


NAMES = {
    "SendMessage": "send_message",
    "GetTask": "get_task",
    "CancelTask": "cancel_task",
    "CreateTaskPushNotificationConfig": "create_task_push_notification_config",
    "GetTaskPushNotificationConfig": "get_task_push_notification_config",
    "ListTaskPushNotificationConfigs": "list_task_push_notification_configs",
    "DeleteTaskPushNotificationConfig": "delete_task_push_notification_config",
    "GetExtendedAgentCard": "get_extended_agent_card",
}


@pytest.mark.requirement("a2a-http-versions")
async def test_our_client_raises_the_sdk_s_error_for_what_their_server_answers(tmp_path: Path):
    def refuse(method: str, params: Any) -> Any:
        raise AnsweredError({"code": -32001, "message": "Task not found: nope"})

    async with calling(tmp_path, refuse) as (transport, _):
        with pytest.raises(TaskNotFoundError, match="nope"):
            await transport.get_task(types.GetTaskRequest(id="nope"))
        # Their server loses the code of an error on a stream; the text is what is left.
        with pytest.raises(A2AClientError, match="Task not found: nope"):
            _ = [e async for e in transport.subscribe(types.SubscribeToTaskRequest(id="nope"))]


async def test_our_unary_call_has_no_headers_so_their_server_sees_the_message_of_their_own_client(
    tmp_path: Path,
):
    async with calling(tmp_path, answered) as (transport, server):
        await transport.get_task(types.GetTaskRequest(id="t-1"))
    assert server.headers == [b""]
