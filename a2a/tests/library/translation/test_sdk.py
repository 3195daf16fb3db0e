"""An SDK handler behind the port of the doors: both versions, both encodings, contexts, errors, streams."""

from __future__ import annotations

import json
import logging
from contextlib import aclosing
from typing import Any

import pytest
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError, UnsupportedOperationError

from a2a import types
from library.translation.agents import ARTIFACT, CARD, CONFIG, MESSAGE, STATUS, TASK, Scripted
from postroom_a2a.ecma_json import loads
from postroom_a2a.errors import MessageTooLarge, NotFound
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.operations import SdkOperations
from postroom_a2a.sdk.translation import OPERATIONS, V03, V10

pytestmark = pytest.mark.anyio

SEND = {"message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}
REQUESTS: dict[type, Any] = {
    types.SendMessageRequest: types.SendMessageRequest(
        message=types.Message(
            message_id="m-1", role=types.Role.ROLE_USER, parts=[types.Part(text="hi")]
        )
    ),
    types.GetTaskRequest: types.GetTaskRequest(id="t-1"),
    types.ListTasksRequest: types.ListTasksRequest(include_artifacts=True),
    types.CancelTaskRequest: types.CancelTaskRequest(id="t-1"),
    types.SubscribeToTaskRequest: types.SubscribeToTaskRequest(id="t-1"),
    types.TaskPushNotificationConfig: CONFIG,
    types.GetTaskPushNotificationConfigRequest: types.GetTaskPushNotificationConfigRequest(
        task_id="t-1", id="p-1"
    ),
    types.ListTaskPushNotificationConfigsRequest: types.ListTaskPushNotificationConfigsRequest(
        task_id="t-1"
    ),
    types.DeleteTaskPushNotificationConfigRequest: types.DeleteTaskPushNotificationConfigRequest(
        task_id="t-1", id="p-1"
    ),
    types.GetExtendedAgentCardRequest: types.GetExtendedAgentCardRequest(),
}
ANSWERS: dict[str, Any] = {
    "SendMessage": types.SendMessageResponse(message=MESSAGE),
    "GetTask": TASK,
    "ListTasks": types.ListTasksResponse(tasks=[TASK], page_size=50, total_size=1),
    "CancelTask": TASK,
    "CreateTaskPushNotificationConfig": CONFIG,
    "GetTaskPushNotificationConfig": CONFIG,
    "ListTaskPushNotificationConfigs": types.ListTaskPushNotificationConfigsResponse(
        configs=[CONFIG]
    ),
    "DeleteTaskPushNotificationConfig": None,
    "GetExtendedAgentCard": CARD,
}
EVENTS = [
    types.StreamResponse(task=TASK),
    types.StreamResponse(artifact_update=ARTIFACT),
    types.StreamResponse(status_update=STATUS),
]
UNARY = [each for each in OPERATIONS.values() if not each.streams]
STREAMS = [each for each in OPERATIONS.values() if each.streams]


async def ask(handler: Scripted, method: str, params: Any = None, **more: Any) -> Any:
    return loads(await SdkOperations(handler).answer(Call(7, method, params, **more)))


async def refused(handler: Scripted, method: str, params: Any = None, **more: Any) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await SdkOperations(handler).answer(Call(7, method, params, **more))
    return caught.value


@pytest.mark.requirement("core-sdk-client")
async def test_operation_answers_in_json():
    for operation in UNARY:
        for dialect in [V10, V03]:
            if dialect is V03 and not operation.legacy:
                return
            handler, request = Scripted(), REQUESTS[operation.request]
            params = dialect.write_params(operation, request)
            value = await ask(handler, dialect.method(operation), params)
            assert handler.asked == request
            assert dialect.read_result(operation, value) == ANSWERS[operation.name]


@pytest.mark.requirement("core-sdk-client")
async def test_operation_answers_in_protobuf():
    for operation in UNARY:
        handler, request = Scripted(), REQUESTS[operation.request]
        call = Call("7", operation.name, request.SerializeToString(), binary=True)
        body = await SdkOperations(handler).answer(call)
        assert handler.asked == request
        if operation.result is None:
            assert body == b""
        else:
            assert operation.result.FromString(body) == ANSWERS[operation.name]


@pytest.mark.requirement("core-sdk-client")
async def test_operation_streams_in_json():
    for operation in STREAMS:
        for dialect in [V10, V03]:
            handler, request = Scripted(), REQUESTS[operation.request]
            params = dialect.write_params(operation, request)
            call = Call(7, dialect.method(operation), params)
            bodies = [body async for body in SdkOperations(handler).stream(call)]
            assert handler.asked == request
            assert [dialect.read_result(operation, loads(body)) for body in bodies] == EVENTS


@pytest.mark.requirement("core-sdk-client")
async def test_operation_streams_in_protobuf():
    for operation in STREAMS:
        handler, request = Scripted(), REQUESTS[operation.request]
        call = Call(7, operation.name, request.SerializeToString(), binary=True)
        bodies = [body async for body in SdkOperations(handler).stream(call)]
        assert [types.StreamResponse.FromString(body) for body in bodies] == EVENTS


async def test_task_that_answers_a_message_is_said_to_be_one():
    assert (await ask(Scripted(TASK), "SendMessage", SEND)).keys() == {"task"}
    legacy = V03.write_params(OPERATIONS["SendMessage"], REQUESTS[types.SendMessageRequest])
    assert (await ask(Scripted(TASK), "message/send", legacy))["kind"] == "task"


async def test_list_shows_empty_members_and_artifacts_only_if_wanted():
    page = types.ListTasksResponse(tasks=[types.Task(id="t-2")])
    without = await ask(Scripted(page), "ListTasks")
    assert without == {
        "tasks": [{"id": "t-2", "contextId": "", "history": []}],
        "nextPageToken": "",
        "pageSize": 0,
        "totalSize": 0,
    }
    wanted = await ask(Scripted(page), "ListTasks", {"includeArtifacts": True})
    assert wanted["tasks"][0]["artifacts"] == []


def test_methods_are_known_by_kind():
    operations = SdkOperations(Scripted())
    assert operations.streams("message/stream")
    assert operations.streams("SubscribeToTask")
    assert not operations.streams("SendMessage")
    assert not operations.streams("nope")
    assert operations.begins("SendMessage")
    assert operations.begins("message/stream")
    assert not operations.begins("tasks/resubscribe")
    assert not operations.begins("nope")


async def test_handler_is_told_what_came_beside_the_parameters():
    handler = Scripted()
    sent = {
        "Authorization": "Bearer x",
        "A2A-Extensions": "urn:a, urn:b,,urn:a",
        "X-A2A-Extensions": "urn:c",
        "a2a-version": "1.0",
    }
    params = SEND | {"tenant": "blue"}
    await ask(handler, "SendMessage", params, parameters=sent, caller="ann", task_id="t-9")
    context = handler.context
    assert context.requested_extensions == {"urn:a", "urn:b", "urn:c"}
    assert context.tenant == "blue"
    assert (context.user.is_authenticated, context.user.user_name) == (True, "ann")
    assert context.state["headers"].items() >= sent.items()
    assert context.state["headers"]["authorization"] == "Bearer x"
    assert context.state["task_id"] == "t-9"
    assert context.state["method"] == "SendMessage"
    assert context.state["request_id"] == 7


async def test_caller_without_proof_is_nobody():
    handler = Scripted()
    await ask(handler, "SendMessage", SEND)
    assert not handler.context.user.is_authenticated
    assert "task_id" not in handler.context.state


async def test_other_major_version_is_refused():
    for method, params, version in [
        ("SendMessage", SEND, "0.3"),
        ("SendMessage", SEND, "2.1"),
        ("SendMessage", SEND, "latest"),
        ("tasks/get", {"id": "t"}, "1.0"),
    ]:
        error = await refused(Scripted(), method, params, parameters={"A2A-VERSION": version})
        assert error.code == Code.VERSION_NOT_SUPPORTED


async def test_same_major_version_is_taken():
    for version in ["", "1", "1.0", "1.7", " 1.0.1 "]:
        await ask(Scripted(), "SendMessage", SEND, parameters={"A2A-Version": version})


async def test_unknown_method_is_refused():
    error = await refused(Scripted(), "tasks/list", {})
    assert error.document()["message"] == "Method not found: tasks/list"
    assert error.code == Code.METHOD_NOT_FOUND


async def test_params_have_to_be_an_object():
    for params in [None, [], "text", 1]:
        for method in ["SendMessage", "message/send", "GetTask", "tasks/get"]:
            error = await refused(Scripted(), method, params)
            assert error.code == Code.INVALID_PARAMS


async def test_bytes_that_are_no_request_are_refused():
    error = await refused(Scripted(), "SendMessage", b"\xff\xff", binary=True)
    assert error.code == Code.INVALID_PARAMS


async def test_a_result_too_large_to_be_kept_is_no_fault_of_the_caller():
    class Overflowing(Scripted):
        async def on_message_send(self, params: Any, context: Any):
            raise MessageTooLarge("the task is too large to be kept")

    error = await refused(Overflowing(), "SendMessage", SEND)
    assert (error.code, error.message) == (Code.INTERNAL_ERROR, "the task is too large to be kept")


async def test_legacy_has_no_protobuf():
    error = await refused(Scripted(), "message/send", b"", binary=True)
    assert error.code == Code.CONTENT_TYPE_NOT_SUPPORTED


async def test_stream_is_not_answered_once_nor_an_answer_streamed():
    error = await refused(Scripted(), "SendStreamingMessage", SEND)
    assert error.code == Code.UNSUPPORTED_OPERATION
    with pytest.raises(RpcError):
        await anext(SdkOperations(Scripted()).stream(Call(1, "SendMessage", SEND)))


async def test_no_task_is_task_not_found():
    for method in ["GetTask", "CancelTask", "tasks/get", "tasks/cancel"]:
        error = await refused(Scripted(None), method, {"id": "nope"})
        assert (error.code, error.message) == (Code.TASK_NOT_FOUND, "Task not found: nope")


async def test_answer_of_another_type_is_the_agents_fault():
    for method in ["SendMessage", "GetTask", "GetExtendedAgentCard"]:
        params = {"SendMessage": SEND}.get(method, {"id": "t"})
        error = await refused(Scripted(CONFIG), method, params)
        assert error.code == Code.INVALID_AGENT_RESPONSE


async def test_errors_of_the_handler_are_answered():
    error = await refused(Scripted(TaskNotFoundError("gone")), "GetTask", {"id": "t"})
    assert (error.code, error.message) == (Code.TASK_NOT_FOUND, "gone")
    error = await refused(Scripted(NotFound("gone")), "GetTask", {"id": "t"})
    assert error.code == Code.TASK_NOT_FOUND
    assert error.document()["data"][0]["metadata"] == {"postroom": "not-found"}
    error = await refused(Scripted(NotFound("gone")), "tasks/get", {"id": "t"})
    assert error.document() == {"code": -32001, "message": "gone"}
    busy = RpcError(Code.SERVER_BUSY, "later")
    error = await refused(Scripted(busy), "SendMessage", SEND)
    assert error is busy


@pytest.mark.requirement("core-sdk-client")
@pytest.mark.parametrize("method", ["GetTask", "tasks/get"])
async def test_unforeseen_exception_is_logged_and_not_shown(
    method: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.ERROR):
        error = await refused(Scripted(KeyError("secret")), method, {"id": "t"})
    assert "secret" not in json.dumps(error.document())
    assert (error.code, error.message) == (Code.INTERNAL_ERROR, "Internal error")
    assert "secret" in caplog.text


async def test_error_before_the_first_event_ends_the_stream():
    for method in ["SubscribeToTask", "tasks/resubscribe"]:
        stream = SdkOperations(Scripted(TaskNotFoundError())).stream(Call(1, method, {"id": "t"}))
        with pytest.raises(RpcError) as caught:
            await anext(stream)
        assert caught.value.code == Code.TASK_NOT_FOUND


async def test_error_after_an_event_ends_the_stream():
    handler = Scripted(events=[TASK, UnsupportedOperationError("no more")])
    stream = SdkOperations(handler).stream(Call(1, "SubscribeToTask", {"id": "t"}))
    assert loads(await anext(stream)).keys() == {"task"}
    with pytest.raises(RpcError) as caught:
        await anext(stream)
    assert (caught.value.code, caught.value.message) == (Code.UNSUPPORTED_OPERATION, "no more")


async def test_stream_left_by_its_consumer_is_closed_at_the_handler():
    handler = Scripted()
    stream = SdkOperations(handler).stream(Call(1, "SubscribeToTask", {"id": "t"}))
    async with aclosing(stream):
        await anext(stream)
    assert handler.closed


async def test_details_of_invalid_params_are_those_of_the_sdk():
    from a2a.server.request_handlers.response_helpers import build_error_response

    raised = InvalidParamsError(data={"errors": [{"field": "id", "message": "is required"}]})
    error = await refused(Scripted(raised), "GetTask", {"id": "t"})
    assert error.document() == build_error_response(7, raised)["error"]
