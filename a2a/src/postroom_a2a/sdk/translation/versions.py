"""A2A 0.3 and 1.0 in JSON: parameters and results of their methods, from and to the protobuf types of 1.0.

1.0 is ProtoJSON, as the SDK's JSON-RPC dispatcher writes it. For 0.3 the SDK has the same translation over pydantic
models (`a2a.compat.v0_3`), which the tests hold this one against; what differs on purpose is said there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message as Proto

from a2a import types
from postroom_a2a.ecma_json import dumps
from postroom_a2a.errors import ProtocolViolation
from postroom_a2a.http import v03
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.translation import cards03, objects03, protojson
from postroom_a2a.sdk.translation.table import Operation
from postroom_a2a.sdk.translation.values import (
    DEPTH,
    UNREADABLE,
    MalformedObject,
    Record,
    count,
    needed,
    plain,
    reason,
    record,
    struct,
    text,
    within,
)


class Dialect03:
    """A2A 0.3."""

    version = "0.3"

    def method(self, operation: Operation) -> str:
        """The operation's legacy name.

        Raises:
            RpcError: UNSUPPORTED_OPERATION, if 0.3 lacks it.
        """
        if not operation.legacy:
            raise RpcError(Code.UNSUPPORTED_OPERATION, f"A2A 0.3 has no {operation.name}")
        return operation.legacy

    def write_params(self, operation: Operation, request: Any) -> Record | None:
        """The parameters; a tenant is left out, for 0.3 has none."""
        self.method(operation)
        _, params = v03.request_down(operation.name, _json(request))
        return params or None

    def params_text(self, operation: Operation, request: Any) -> bytes | None:
        """The parameters as JSON text; None where they are left out."""
        params = self.write_params(operation, request)
        return None if params is None else dumps(params)

    def read_params(self, operation: Operation, value: Any) -> Any:
        """The request in the parameters.

        Raises:
            RpcError: INVALID_PARAMS, with the wrong member.
        """
        self.method(operation)
        if value is None and operation.bare:
            return operation.request()
        try:
            return _READ_PARAMS[operation.request](record(value, "'params'"))
        except MalformedObject as error:
            raise RpcError(Code.INVALID_PARAMS, str(error)) from error

    def write_result(
        self,
        operation: Operation,
        message: Any,
        request: Proto | None = None,  # noqa: ARG002 (the port's)
    ) -> Any:
        """The result, or one event of a stream: a bare object with its `kind`."""
        if operation.result is None or message is None:
            return None
        if operation.result is types.AgentCard:
            return cards03.write_card(message)
        if operation.result in _HOLDERS:
            return v03.event_down(_json(message) or {"message": {}})
        return v03.answer_down(operation.name, _json(message))

    def result_text(
        self, operation: Operation, message: Any, request: Proto | None = None
    ) -> bytes:
        """As `write_result`, as JSON text."""
        return dumps(self.write_result(operation, message, request))

    def read_result(self, operation: Operation, value: Any) -> Any:
        """The message in a result.

        Raises:
            ProtocolViolation: `value` is not such a message.
        """
        if operation.result is None:
            return None
        try:
            return _READ_RESULT[operation.result](value)
        except MalformedObject as error:
            raise ProtocolViolation(f"the result of {operation.legacy}: {error}") from error


# ── parameters ───────────────────────────────────────────────────────────────────────────────────────


def _read_send(said: Record) -> types.SendMessageRequest:
    message = within(said, "message", objects03.read_message)
    if message is None:
        raise MalformedObject("message", "is required")
    if not message.message_id:
        raise MalformedObject("message.messageId", "is required")
    request = types.SendMessageRequest(
        message=message, configuration=within(said, "configuration", objects03.read_configuration)
    )
    struct(said, "metadata", request.metadata)
    return request


def _read_get(said: Record) -> types.GetTaskRequest:
    length = count(said, "historyLength") or None  # 0 is the whole history in 0.3
    return types.GetTaskRequest(id=needed(said, "id"), history_length=length)


def _read_cancel(said: Record) -> types.CancelTaskRequest:
    request = types.CancelTaskRequest(id=needed(said, "id"))
    struct(said, "metadata", request.metadata)
    return request


def _read_set_push(said: Record) -> types.TaskPushNotificationConfig:
    needed(said, "taskId")
    return objects03.read_task_push_config(said)


_READ_PARAMS: dict[type[Proto], Callable[[Record], Proto]] = {
    types.SendMessageRequest: _read_send,
    types.GetTaskRequest: _read_get,
    types.CancelTaskRequest: _read_cancel,
    types.SubscribeToTaskRequest: lambda said: types.SubscribeToTaskRequest(id=needed(said, "id")),
    types.TaskPushNotificationConfig: _read_set_push,
    types.GetTaskPushNotificationConfigRequest: lambda said: (
        types.GetTaskPushNotificationConfigRequest(
            task_id=needed(said, "id"), id=text(said, "pushNotificationConfigId")
        )
    ),
    types.ListTaskPushNotificationConfigsRequest: lambda said: (
        types.ListTaskPushNotificationConfigsRequest(task_id=needed(said, "id"))
    ),
    types.DeleteTaskPushNotificationConfigRequest: lambda said: (
        types.DeleteTaskPushNotificationConfigRequest(
            task_id=needed(said, "id"), id=needed(said, "pushNotificationConfigId")
        )
    ),
    types.GetExtendedAgentCardRequest: lambda _: types.GetExtendedAgentCardRequest(),
}


# ── results ──────────────────────────────────────────────────────────────────────────────────────────


def _kind(said: Record) -> str:
    """The kind of an event, also of one that does not say it."""
    kind = said.get("kind")
    if isinstance(kind, str):
        return kind
    if "messageId" in said:
        return "message"
    if "artifact" in said:
        return "artifact-update"
    if "status" in said:
        return "status-update" if "taskId" in said else "task"
    return ""


def _read_answer(value: Any) -> types.SendMessageResponse:
    said = record(value, "it")
    match _kind(said):
        case "task":
            return types.SendMessageResponse(task=objects03.read_task(said))
        case "message":
            return types.SendMessageResponse(message=objects03.read_message(said))
    raise MalformedObject("kind", "has to be 'task' or 'message'")


def _read_event(value: Any) -> types.StreamResponse:
    said = record(value, "it")
    match _kind(said):
        case "task":
            return types.StreamResponse(task=objects03.read_task(said))
        case "message":
            return types.StreamResponse(message=objects03.read_message(said))
        case "status-update":
            return types.StreamResponse(status_update=objects03.read_status_update(said))
        case "artifact-update":
            return types.StreamResponse(artifact_update=objects03.read_artifact_update(said))
    raise MalformedObject(
        "kind", "has to be 'task', 'message', 'status-update' or 'artifact-update'"
    )


def _read_configs(value: Any) -> types.ListTaskPushNotificationConfigsResponse:
    if not isinstance(value, list):
        raise MalformedObject("it", "has to be a list")
    configs = [objects03.read_task_push_config(each) for each in value]
    return types.ListTaskPushNotificationConfigsResponse(configs=configs)


def _read_task(value: Any) -> types.Task:
    return objects03.read_task(record(value, "it"))


def _read_push(value: Any) -> types.TaskPushNotificationConfig:
    return objects03.read_task_push_config(record(value, "it"))


_READ_RESULT: dict[type[Proto], Callable[[Any], Proto]] = {
    types.SendMessageResponse: _read_answer,
    types.StreamResponse: _read_event,
    types.Task: _read_task,
    types.TaskPushNotificationConfig: _read_push,
    types.ListTaskPushNotificationConfigsResponse: _read_configs,
    types.AgentCard: cards03.read_card,
}

_HOLDERS = frozenset({types.SendMessageResponse, types.StreamResponse})


def _json(message: Proto) -> Any:
    return json.loads(protojson.write(message))


V03 = Dialect03()


class Dialect10:
    """A2A 1.0; readers ignore unknown members."""

    version = "1.0"

    def method(self, operation: Operation) -> str:
        """The operation's name."""
        return operation.name

    def write_params(self, operation: Operation, request: Proto) -> dict[str, Any]:  # noqa: ARG002 (the port's)
        """The request as ProtoJSON."""
        return plain(request)

    def params_text(self, operation: Operation, request: Proto) -> bytes:  # noqa: ARG002 (the port's)
        """The request as ProtoJSON text."""
        return protojson.write(request)

    def read_params(self, operation: Operation, value: Any) -> Proto:
        """The request in ProtoJSON.

        Raises:
            RpcError: INVALID_PARAMS, if the value is not such a request.
        """
        if value is None and operation.bare:
            return operation.request()
        if not isinstance(value, dict):
            raise RpcError(Code.INVALID_PARAMS, "'params' has to be an object")
        try:
            return protojson.read(value, operation.request, depth=DEPTH)
        except UNREADABLE as error:
            raise RpcError(Code.INVALID_PARAMS, f"'params': {reason(error)}") from error

    def write_result(
        self,
        operation: Operation,
        message: Proto | None,
        request: Proto | None = None,
    ) -> dict[str, Any] | None:
        """The message as ProtoJSON; a page of tasks has its empty members too, as the specification wants."""
        if operation.result is None or message is None:
            return None
        if not isinstance(message, types.ListTasksResponse):
            return plain(message)
        page = plain(message, always_print_fields_with_no_presence=True)
        if isinstance(request, types.ListTasksRequest) and not request.include_artifacts:
            for task in page["tasks"]:
                del task["artifacts"]
        return page

    def result_text(
        self,
        operation: Operation,
        message: Proto | None,
        request: Proto | None = None,
    ) -> bytes:
        """As `write_result`, as text."""
        if message is None or isinstance(message, types.ListTasksResponse):
            return dumps(self.write_result(operation, message, request))
        return b"null" if operation.result is None else protojson.write(message)

    def read_result(self, operation: Operation, value: Any) -> Any:
        """The message in ProtoJSON.

        Raises:
            ProtocolViolation: `value` is not such a message.
        """
        if operation.result is None:
            return None
        if not isinstance(value, dict):
            raise ProtocolViolation(f"the result of {operation.name} is no object")
        try:
            message = protojson.read(value, operation.result, depth=_ANSWER_DEPTH)
        except UNREADABLE as error:
            raise ProtocolViolation(f"the result of {operation.name}: {reason(error)}") from error
        if operation.result in _HOLDERS and message.WhichOneof("payload") is None:
            raise ProtocolViolation(f"the result of {operation.name} holds nothing")
        return message


_ANSWER_DEPTH = 100
"""How deep protobuf's reader goes into an answer: as deep as it does by itself."""


V10 = Dialect10()
