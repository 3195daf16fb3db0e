"""The operations of A2A: the one table of their names, their types, and where an SDK handler has them; and its errors.

Names are those of A2A 1.0; 0.3 has other names for the same operations (docs/binding.md, Operations). An error is one
of the SDK's classes, or the error of a response (code, message, data).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from a2a.utils.error_handlers import build_error_details
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError
from google.protobuf.message import Message as Proto

from a2a import types
from postroom_a2a.rpc import DOMAIN, ERROR_INFO, Code, RpcError


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of A2A.

    Attributes:
        name: its method in A2A 1.0.
        legacy: its method in A2A 0.3; "" where 0.3 has none.
        handler: the attribute of the SDK's `RequestHandler` that performs it.
        request: the protobuf type of its parameters.
        result: the protobuf type of its answer, or of one event of its stream; None for an answer without content.
        streams: whether it answers with a stream.
        begins: whether it may begin work, so that it must not be performed twice for one call.
        bare: whether its parameters may be left out.
    """

    name: str
    legacy: str
    handler: str
    request: type[Proto]
    result: type[Proto] | None
    streams: bool = False
    begins: bool = False
    bare: bool = False


_PUSH = "tasks/pushNotificationConfig"

_TABLE = (
    Operation(
        "SendMessage",
        "message/send",
        "on_message_send",
        types.SendMessageRequest,
        types.SendMessageResponse,
        begins=True,
    ),
    Operation(
        "SendStreamingMessage",
        "message/stream",
        "on_message_send_stream",
        types.SendMessageRequest,
        types.StreamResponse,
        streams=True,
        begins=True,
    ),
    Operation("GetTask", "tasks/get", "on_get_task", types.GetTaskRequest, types.Task),
    Operation(
        "ListTasks", "", "on_list_tasks", types.ListTasksRequest, types.ListTasksResponse, bare=True
    ),
    Operation("CancelTask", "tasks/cancel", "on_cancel_task", types.CancelTaskRequest, types.Task),
    Operation(
        "SubscribeToTask",
        "tasks/resubscribe",
        "on_subscribe_to_task",
        types.SubscribeToTaskRequest,
        types.StreamResponse,
        streams=True,
    ),
    Operation(
        "CreateTaskPushNotificationConfig",
        f"{_PUSH}/set",
        "on_create_task_push_notification_config",
        types.TaskPushNotificationConfig,
        types.TaskPushNotificationConfig,
    ),
    Operation(
        "GetTaskPushNotificationConfig",
        f"{_PUSH}/get",
        "on_get_task_push_notification_config",
        types.GetTaskPushNotificationConfigRequest,
        types.TaskPushNotificationConfig,
    ),
    Operation(
        "ListTaskPushNotificationConfigs",
        f"{_PUSH}/list",
        "on_list_task_push_notification_configs",
        types.ListTaskPushNotificationConfigsRequest,
        types.ListTaskPushNotificationConfigsResponse,
    ),
    Operation(
        "DeleteTaskPushNotificationConfig",
        f"{_PUSH}/delete",
        "on_delete_task_push_notification_config",
        types.DeleteTaskPushNotificationConfigRequest,
        None,
    ),
    Operation(
        "GetExtendedAgentCard",
        "agent/getAuthenticatedExtendedCard",
        "on_get_extended_agent_card",
        types.GetExtendedAgentCardRequest,
        types.AgentCard,
        bare=True,
    ),
)

OPERATIONS: Mapping[str, Operation] = {operation.name: operation for operation in _TABLE}
"""Every operation by its name in A2A 1.0."""


class Dialect(Protocol):
    """One version of A2A in JSON: its names for operations, and its objects from and to protobuf."""

    version: str
    """Major and minor, as the service parameter `A2A-Version` states it."""

    def method(self, operation: Operation) -> str:
        """The name of an operation's method in this version.

        Raises:
            RpcError: UNSUPPORTED_OPERATION, if the version lacks it.
        """

    def write_params(self, operation: Operation, request: Any) -> Any:
        """The parameters of a call as a JSON value; None where they are left out.

        Raises:
            RpcError: UNSUPPORTED_OPERATION, as by `method`.
        """

    def params_text(self, operation: Operation, request: Any) -> bytes | None:
        """As `write_params`, as JSON text."""

    def read_params(self, operation: Operation, value: Any) -> Any:
        """The request in the parameters of a call, None where they were left out.

        Raises:
            RpcError: INVALID_PARAMS, with the wrong member.
        """

    def write_result(self, operation: Operation, message: Any, request: Any = None) -> Any:
        """A result, or one event of a stream, as a JSON value.

        Args:
            message: of the operation's type; None if that is None.
            request: if known; it decides which members a list of tasks shows.
        """

    def result_text(self, operation: Operation, message: Any, request: Any = None) -> bytes:
        """As `write_result`, as JSON text."""

    def read_result(self, operation: Operation, value: Any) -> Any:
        """The message in a result, or in one event of a stream; None where the operation's type is None.

        Raises:
            ProtocolViolation: `value` is not such a message.
        """


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


_LEGACY = frozenset(Code) - {Code.EXTENSION_SUPPORT_REQUIRED, Code.VERSION_NOT_SUPPORTED}
"""The codes for a peer of A2A 0.3; SERVER_BUSY is in JSON-RPC's own range, which every version has."""

_NAMED: dict[int, Code] = {int(code): code for code in Code}
_KINDS: dict[int, type[A2AError]] = {code: kind for kind, code in JSON_RPC_ERROR_CODE_MAP.items()}


def rpc_error(error: A2AError, dialect: Dialect) -> RpcError:
    """The error for a response. In 1.0 an object as `data` becomes the metadata of an ErrorInfo, as in the SDK."""
    code = _code_of(error)
    said = RpcError(_NAMED.get(code, code), str(error))
    data = _json(error.data)
    if dialect.version == "0.3":
        said.plain = True
        said.data = data
        if code not in _LEGACY:
            said.code = Code.INTERNAL_ERROR
    elif not isinstance(data, dict):
        said.data = data
    elif type(error) in JSON_RPC_ERROR_CODE_MAP:
        said.data = _json(build_error_details(error))
    else:
        reason = said.code.name if isinstance(said.code, Code) else "UNKNOWN_ERROR"
        info = {"@type": ERROR_INFO, "reason": reason, "domain": DOMAIN, "metadata": data}
        said.data = [info]
    return said


def _json(data: Any) -> Any:
    """An agent's own data as JSON; a value without a form in JSON becomes text."""
    try:
        return json.loads(json.dumps(data, default=str, skipkeys=True))
    except (ValueError, RecursionError):
        return None


def _code_of(error: A2AError) -> int:
    for kind in type(error).__mro__:
        if issubclass(kind, A2AError) and kind in JSON_RPC_ERROR_CODE_MAP:
            return JSON_RPC_ERROR_CODE_MAP[kind]
    code = getattr(error, "code", None)  # of an error that a peer answered with, passed on
    return code if isinstance(code, int) else Code.INTERNAL_ERROR


def a2a_error(error: RpcError) -> A2AError:
    """What a client raises for an answered error: the SDK's type for the code, where it has one.

    Returns:
        Else `ServerBusyError`, or an `UnknownCodeError` that keeps the code. `data` is the metadata of an ErrorInfo
        where that is all there is, else as it came.
    """
    # Imported late: this loads the SDK's client, which a server has no use for.
    from postroom_a2a.sdk.errors import ServerBusyError, UnknownCodeError

    data = _data_of(error.data)
    kind = _KINDS.get(error.code)
    if kind is not None:
        return kind(error.message or None, data)
    if error.code == Code.SERVER_BUSY:
        return ServerBusyError(error.message or None, data)
    return UnknownCodeError(int(error.code), error.message, data)


def _data_of(data: Any) -> Any:
    """The data of an SDK error: the metadata of a lone ErrorInfo, else the peer's data."""
    if not isinstance(data, list):
        return data
    infos = [each for each in data if isinstance(each, dict) and each.get("@type") == ERROR_INFO]
    if len(infos) == 1 and infos[0].get("domain") == DOMAIN:
        return infos[0].get("metadata") or None
    return data
