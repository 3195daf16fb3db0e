"""A2A 0.3 in JSON: parameters and results of its methods, from and to the protobuf types of 1.0.

The SDK has the same translation over pydantic models (`a2a.compat.v0_3`), which the tests hold this one against;
what differs on purpose is said there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import Message as Proto

from a2a import types
from postroom_a2a.ecma_json import dumps
from postroom_a2a.errors import ProtocolViolation
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.translation import cards03, configs03, objects03
from postroom_a2a.sdk.translation.table import Operation
from postroom_a2a.sdk.translation.values import (
    MalformedObject,
    Record,
    count,
    needed,
    plain,
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
        return _WRITE_PARAMS[type(request)](request)

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
        return _WRITE_RESULT[operation.result](message)

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


def _write_send(request: types.SendMessageRequest) -> Record:
    written: Record = {"message": objects03.write_message(request.message)}
    if request.HasField("configuration"):
        written["configuration"] = configs03.write_configuration(request.configuration)
    if request.HasField("metadata"):
        written["metadata"] = plain(request.metadata)
    return written


def _read_send(said: Record) -> types.SendMessageRequest:
    message = within(said, "message", objects03.read_message)
    if message is None:
        raise MalformedObject("message", "is required")
    if not message.message_id:
        raise MalformedObject("message.messageId", "is required")
    request = types.SendMessageRequest(
        message=message, configuration=within(said, "configuration", configs03.read_configuration)
    )
    struct(said, "metadata", request.metadata)
    return request


def _write_get(request: types.GetTaskRequest) -> Record:
    if request.HasField("history_length"):
        return {"id": request.id, "historyLength": request.history_length}
    return {"id": request.id}


def _read_get(said: Record) -> types.GetTaskRequest:
    length = count(said, "historyLength") or None  # 0 is the whole history in 0.3
    return types.GetTaskRequest(id=needed(said, "id"), history_length=length)


def _write_cancel(request: types.CancelTaskRequest) -> Record:
    if request.HasField("metadata"):
        return {"id": request.id, "metadata": plain(request.metadata)}
    return {"id": request.id}


def _read_cancel(said: Record) -> types.CancelTaskRequest:
    request = types.CancelTaskRequest(id=needed(said, "id"))
    struct(said, "metadata", request.metadata)
    return request


def _read_set_push(said: Record) -> types.TaskPushNotificationConfig:
    needed(said, "taskId")
    return configs03.read_task_push_config(said)


def _write_push_id(
    request: types.GetTaskPushNotificationConfigRequest
    | types.DeleteTaskPushNotificationConfigRequest,
) -> Record:
    if request.id:
        return {"id": request.task_id, "pushNotificationConfigId": request.id}
    return {"id": request.task_id}


_WRITE_PARAMS: dict[type[Proto], Callable[[Any], Record | None]] = {
    types.SendMessageRequest: _write_send,
    types.GetTaskRequest: _write_get,
    types.CancelTaskRequest: _write_cancel,
    types.SubscribeToTaskRequest: lambda request: {"id": request.id},
    types.TaskPushNotificationConfig: configs03.write_task_push_config,
    types.GetTaskPushNotificationConfigRequest: _write_push_id,
    types.ListTaskPushNotificationConfigsRequest: lambda request: {"id": request.task_id},
    types.DeleteTaskPushNotificationConfigRequest: _write_push_id,
    types.GetExtendedAgentCardRequest: lambda _: None,
}

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

_WRITERS: dict[str | None, Callable[[Any], Record]] = {
    "task": objects03.write_task,
    "message": objects03.write_message,
    "status_update": objects03.write_status_update,
    "artifact_update": objects03.write_artifact_update,
}


def _write_one(held: types.SendMessageResponse | types.StreamResponse) -> Record:
    which = held.WhichOneof("payload") or "message"
    return _WRITERS[which](getattr(held, which))


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


def _write_configs(found: types.ListTaskPushNotificationConfigsResponse) -> list[Record]:
    return [configs03.write_task_push_config(config) for config in found.configs]


def _read_configs(value: Any) -> types.ListTaskPushNotificationConfigsResponse:
    if not isinstance(value, list):
        raise MalformedObject("it", "has to be a list")
    configs = [configs03.read_task_push_config(each) for each in value]
    return types.ListTaskPushNotificationConfigsResponse(configs=configs)


def _read_task(value: Any) -> types.Task:
    return objects03.read_task(record(value, "it"))


def _read_push(value: Any) -> types.TaskPushNotificationConfig:
    return configs03.read_task_push_config(record(value, "it"))


_WRITE_RESULT: dict[type[Proto], Callable[[Any], Any]] = {
    types.SendMessageResponse: _write_one,
    types.StreamResponse: _write_one,
    types.Task: objects03.write_task,
    types.TaskPushNotificationConfig: configs03.write_task_push_config,
    types.ListTaskPushNotificationConfigsResponse: _write_configs,
    types.AgentCard: cards03.write_card,
}

_READ_RESULT: dict[type[Proto], Callable[[Any], Proto]] = {
    types.SendMessageResponse: _read_answer,
    types.StreamResponse: _read_event,
    types.Task: _read_task,
    types.TaskPushNotificationConfig: _read_push,
    types.ListTaskPushNotificationConfigsResponse: _read_configs,
    types.AgentCard: cards03.read_card,
}

V03 = Dialect03()
