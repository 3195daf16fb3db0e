"""Errors as HTTP says them: status codes (A2A 1.0, section 5.4), and `google.rpc.Status` for REST (section 11.6)."""

from __future__ import annotations

import math
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
from postroom_a2a.rpc import Code, RpcError

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
