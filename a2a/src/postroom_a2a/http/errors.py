"""Errors as HTTP says them, and the versions of A2A that HTTP clients speak.

Status codes are those of A2A 1.0, section 5.4; for REST there is `google.rpc.Status` (section 11.6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from postroom_a2a.errors import (
    Conflict,
    ContentNotTaken,
    EnvironmentFault,
    Forbidden,
    InvalidInput,
    MessageTooLarge,
    NotFound,
    PeerError,
    PostroomError,
    Refused,
    RequestTimeout,
    StreamFull,
    Unauthorized,
)
from postroom_a2a.http.exchange import VERSION
from postroom_a2a.rpc import Code, RpcError

# ── versions ──────────────────────────────────────────────────────────────────────────────────────


V10, V03 = "1.0", "0.3"

STREAMING = frozenset({"SendStreamingMessage", "SubscribeToTask"})

BLOCKING = frozenset({"SendMessage"})
"""Methods whose answer may take as long as their task."""

_PUSH = "tasks/pushNotificationConfig"

LEGACY: Mapping[str, str] = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
    f"{_PUSH}/set": "CreateTaskPushNotificationConfig",
    f"{_PUSH}/get": "GetTaskPushNotificationConfig",
    f"{_PUSH}/list": "ListTaskPushNotificationConfigs",
    f"{_PUSH}/delete": "DeleteTaskPushNotificationConfig",
    "agent/getAuthenticatedExtendedCard": "GetExtendedAgentCard",
}
"""Each method of A2A 0.3 by its name there: its name in 1.0."""

METHODS = frozenset(LEGACY.values()) | {"ListTasks"}
"""The methods of A2A 1.0."""


def version_of(parameters: Mapping[str, str]) -> str:
    """The version that a request states; none is 0.3 (A2A 1.0, section 3.6.2).

    Raises:
        RpcError: it is another one.
    """
    stated = parameters.get(VERSION, "").strip()
    if not stated:
        return V03
    version = ".".join(stated.split(".")[:2])  # a patch does not count
    if version in (V10, V03):
        return version
    text = f"A2A {stated[:20]} is not spoken here: send the header {VERSION}: {V10}, or {V03}"
    raise RpcError(Code.VERSION_NOT_SUPPORTED, text)


STATUS: dict[int, tuple[int, str]] = {
    Code.TASK_NOT_FOUND: (404, "NOT_FOUND"),
    Code.TASK_NOT_CANCELABLE: (409, "FAILED_PRECONDITION"),
    Code.PUSH_NOTIFICATION_NOT_SUPPORTED: (400, "FAILED_PRECONDITION"),
    Code.UNSUPPORTED_OPERATION: (400, "FAILED_PRECONDITION"),
    Code.CONTENT_TYPE_NOT_SUPPORTED: (415, "INVALID_ARGUMENT"),
    Code.INVALID_AGENT_RESPONSE: (502, "INTERNAL"),
    Code.EXTENDED_AGENT_CARD_NOT_CONFIGURED: (400, "FAILED_PRECONDITION"),
    Code.EXTENSION_SUPPORT_REQUIRED: (400, "FAILED_PRECONDITION"),
    Code.VERSION_NOT_SUPPORTED: (400, "FAILED_PRECONDITION"),
    Code.SERVER_BUSY: (429, "RESOURCE_EXHAUSTED"),
    Code.INVALID_REQUEST: (400, "INVALID_ARGUMENT"),
    Code.METHOD_NOT_FOUND: (404, "NOT_FOUND"),
    Code.INVALID_PARAMS: (400, "INVALID_ARGUMENT"),
    Code.INTERNAL_ERROR: (500, "INTERNAL"),
    Code.PARSE_ERROR: (400, "INVALID_ARGUMENT"),
}
"""Code of a JSON-RPC error to HTTP's status and gRPC's."""

_REFUSALS: dict[type[PostroomError], tuple[int, str]] = {
    PostroomError: (500, "INTERNAL"),
    InvalidInput: (400, "INVALID_ARGUMENT"),
    MessageTooLarge: (413, "INVALID_ARGUMENT"),
    ContentNotTaken: (415, "INVALID_ARGUMENT"),
    NotFound: (404, "NOT_FOUND"),
    Conflict: (409, "FAILED_PRECONDITION"),
    Forbidden: (403, "PERMISSION_DENIED"),
    Unauthorized: (401, "UNAUTHENTICATED"),
    PeerError: (502, "UNAVAILABLE"),
    RequestTimeout: (504, "DEADLINE_EXCEEDED"),
    Refused: (429, "RESOURCE_EXHAUSTED"),
    StreamFull: (507, "RESOURCE_EXHAUSTED"),
    EnvironmentFault: (503, "UNAVAILABLE"),
}

Headers = tuple[tuple[bytes, bytes], ...]


def status_of(error: RpcError | PostroomError) -> tuple[int, str]:
    """HTTP status and name of the `google.rpc.Code` of an error."""
    if isinstance(error, RpcError):
        if error.fault is None:
            return STATUS.get(error.code, (500, "INTERNAL"))
        error = error.fault
    known = (kind for kind in type(error).__mro__ if issubclass(kind, PostroomError))
    return next(_REFUSALS[kind] for kind in known if kind in _REFUSALS)


def headers_of(status: int, error: RpcError | PostroomError) -> Headers:
    """The headers that belong to a refusal; an error may say in `seconds` how long to wait."""
    if status == 401:
        return ((b"www-authenticate", b"Bearer"),)
    if status in (429, 503, 507):
        after = max(1, math.ceil(getattr(error, "seconds", 1.0)))
        return ((b"retry-after", b"%d" % after),)
    return ()


def refused(error: PostroomError) -> RpcError:
    """The error of JSON-RPC for a request that is refused whatever it asks for."""
    if isinstance(error, MessageTooLarge | Forbidden | NotFound):
        return RpcError(Code.INVALID_REQUEST, str(error), postroom=error.code)
    return RpcError.of(error)


def rest_status(error: RpcError | PostroomError) -> tuple[int, dict[str, Any]]:
    """HTTP status and body of a refusal over REST."""
    number, name = status_of(error)
    document = (error if isinstance(error, RpcError) else refused(error)).document()
    details = document.get("data")
    details = details if isinstance(details, list) else []
    if details and (isinstance(error, PostroomError) or error.fault is not None):
        details[0]["reason"] = name  # none of A2A's own errors
    shown = {"code": number, "status": name, "message": document["message"]}
    return number, {"error": {**shown, "details": details}}
