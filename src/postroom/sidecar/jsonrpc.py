"""JSON-RPC 2.0 as A2A 1.0 uses it: requests in, results and errors out (A2A specification, section 9). Pure."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any

from postroom.errors import InvalidInput, NotFound, PostroomError
from postroom.protocol.text import one_line

DOMAIN = "a2a-protocol.org"
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


class Code(IntEnum):
    """Error codes of JSON-RPC and A2A (sections 5.4 and 9.5); the name is the reason in ErrorInfo."""

    TASK_NOT_FOUND = -32001
    TASK_NOT_CANCELABLE = -32002
    PUSH_NOTIFICATION_NOT_SUPPORTED = -32003
    UNSUPPORTED_OPERATION = -32004
    CONTENT_TYPE_NOT_SUPPORTED = -32005
    VERSION_NOT_SUPPORTED = -32009
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    PARSE_ERROR = -32700


class RpcError(Exception):
    """A call that is answered with an error.

    Args:
        code: of it.
        message: one sentence for people.
        about: names and values that go into the ErrorInfo.
    """

    def __init__(self, code: Code, message: str, **about: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.about = about

    @classmethod
    def of(cls, error: PostroomError) -> RpcError:
        """What an error of Postroom's is to an A2A client."""
        code = Code.INTERNAL_ERROR
        if isinstance(error, InvalidInput):
            code = Code.INVALID_PARAMS
        elif isinstance(error, NotFound):
            code = Code.TASK_NOT_FOUND
        return cls(code, str(error), postroom=error.code)


Id = str | int | None
"""What a call's answer repeats."""


def read_json(body: bytes) -> Any:
    """The value in a body.

    Raises:
        RpcError: it is none.
    """
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RpcError(Code.PARSE_ERROR, "the body is no JSON") from error


def id_of(record: Any) -> Id:
    """The id of a call, None where there is none that an answer can repeat."""
    call_id = record.get("id") if isinstance(record, dict) else None
    return call_id if isinstance(call_id, str | int) and not isinstance(call_id, bool) else None


def read_call(record: Any) -> tuple[str, dict[str, Any]]:
    """Method and parameters of a call.

    Raises:
        RpcError: it is none.
    """
    if not isinstance(record, dict) or record.get("jsonrpc") != "2.0":
        raise RpcError(Code.INVALID_REQUEST, "it is no single call of JSON-RPC 2.0")
    if record.get("id") is not None and id_of(record) is None:
        raise RpcError(Code.INVALID_REQUEST, "'id' has to be a text or a whole number")
    method, params = record.get("method"), record.get("params", {})
    if not isinstance(method, str) or not isinstance(params, dict):
        raise RpcError(Code.INVALID_REQUEST, "'method' has to be a text, 'params' an object")
    return method, params


def result(call_id: Id, value: Any) -> dict[str, Any]:
    """The answer to a call that went well."""
    return {"jsonrpc": "2.0", "id": call_id, "result": value}


def refusal(call_id: Id, error: RpcError) -> dict[str, Any]:
    """The answer to a call that did not."""
    about = {name: one_line(value, 200) for name, value in error.about.items()}
    info = {"@type": ERROR_INFO, "reason": error.code.name, "domain": DOMAIN, "metadata": about}
    said = {"code": error.code.value, "message": one_line(error.message, 500), "data": [info]}
    return {"jsonrpc": "2.0", "id": call_id, "error": said}
