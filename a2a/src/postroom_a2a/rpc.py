"""JSON-RPC 2.0 as A2A uses it: requests in, results and errors out (A2A 1.0, section 9). Pure.

Every server of an A2A agent (HTTP, NATS, the socket of a worker) reads calls and writes errors with this module.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from postroom_a2a.bounds import MAX_LEVELS, MAX_VALUES
from postroom_a2a.errors import (
    Conflict,
    ContentNotTaken,
    EnvironmentFault,
    Forbidden,
    InvalidInput,
    NotFound,
    PeerError,
    PostroomError,
    Refused,
    StreamFull,
)
from postroom_a2a.strict_json import TooMuch, bounded
from postroom_a2a.text import one_line

DOMAIN = "a2a-protocol.org"
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


class Code(IntEnum):
    """Error codes of JSON-RPC and A2A (sections 5.4 and 9.5); the name is the reason in ErrorInfo."""

    TASK_NOT_FOUND = -32001
    TASK_NOT_CANCELABLE = -32002
    PUSH_NOTIFICATION_NOT_SUPPORTED = -32003
    UNSUPPORTED_OPERATION = -32004
    CONTENT_TYPE_NOT_SUPPORTED = -32005
    INVALID_AGENT_RESPONSE = -32006
    EXTENDED_AGENT_CARD_NOT_CONFIGURED = -32007
    EXTENSION_SUPPORT_REQUIRED = -32008
    VERSION_NOT_SUPPORTED = -32009
    # Ours, in JSON-RPC's range for servers: the server began nothing, the caller may try again later.
    SERVER_BUSY = -32050
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    PARSE_ERROR = -32700


_CODES = frozenset(map(int, Code))


class RpcError(Exception):
    """The error that answers a call.

    Args:
        code: a plain number where a peer sent an unknown one.
        data: as a peer sent it; None for an ErrorInfo with `about`.
        about: metadata of the ErrorInfo.

    Attributes:
        plain: leave out the ErrorInfo, as A2A 0.3 does.
        fault: what is away, full or silent behind the server, so that the call is no caller's mistake; None for others.
    """

    def __init__(self, code: Code | int, message: str, data: Any = None, **about: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
        self.about = about
        self.plain = False
        self.fault: PostroomError | None = None

    @classmethod
    def of(cls, error: PostroomError) -> RpcError:
        """The A2A error for an error of Postroom's."""
        code = Code.INTERNAL_ERROR
        if isinstance(error, ContentNotTaken):
            code = Code.CONTENT_TYPE_NOT_SUPPORTED
        elif isinstance(error, InvalidInput):
            code = Code.INVALID_PARAMS
        elif isinstance(error, NotFound):
            code = Code.TASK_NOT_FOUND
        elif isinstance(error, Conflict):
            code = Code.UNSUPPORTED_OPERATION
        elif isinstance(error, Refused):
            code = Code.SERVER_BUSY
        elif isinstance(error, Forbidden):
            code = Code.INVALID_REQUEST
        made = cls(code, str(error), postroom=error.code)
        if isinstance(error, EnvironmentFault | Forbidden | PeerError | StreamFull):
            made.fault = error
        return made

    def document(self) -> dict[str, Any]:
        """The error member of a response, without null members."""
        document: dict[str, Any] = {
            "code": int(self.code),
            "message": one_line(self.message, 500),
        }
        if self.data is not None:
            document["data"] = self.data
        elif isinstance(self.code, Code) and not self.plain:
            about = {name: one_line(value, 200) for name, value in self.about.items()}
            info = {"@type": ERROR_INFO, "reason": self.code.name, "domain": DOMAIN}
            document["data"] = [{**info, "metadata": about}]
        return document

    @classmethod
    def read(cls, document: Any) -> RpcError:
        """The error in a response, whatever a peer wrote there."""
        if not isinstance(document, dict):
            return cls(Code.INTERNAL_ERROR, "the peer sent an error that is not an object")
        code, message = document.get("code"), document.get("message")
        number = code if isinstance(code, int) and not isinstance(code, bool) else -32603
        named = Code(number) if number in _CODES else number
        return cls(named, message if isinstance(message, str) else "", document.get("data"))


Id = str | int | None
"""Id of a call; the answer repeats it."""


def read_json(body: bytes) -> Any:
    """The JSON value in a body.

    Raises:
        RpcError: the body is not JSON, or over a bound.
    """
    try:
        return bounded(body, MAX_LEVELS, MAX_VALUES)
    except TooMuch as error:
        raise RpcError(Code.PARSE_ERROR, f"the body is too much: {error}") from error
    except ValueError as error:
        raise RpcError(Code.PARSE_ERROR, "the body is not JSON") from error


def id_of(record: Any) -> Id:
    """The id of a call; None if an answer cannot repeat it."""
    call_id = record.get("id") if isinstance(record, dict) else None
    return call_id if isinstance(call_id, str | int) and not isinstance(call_id, bool) else None


def read_call(record: Any) -> tuple[str, dict[str, Any]]:
    """Method and parameters of a call.

    Raises:
        RpcError: `record` is not a call.
    """
    if not isinstance(record, dict) or record.get("jsonrpc") != "2.0":
        raise RpcError(Code.INVALID_REQUEST, "the body is not a single call of JSON-RPC 2.0")
    if record.get("id") is not None and id_of(record) is None:
        raise RpcError(Code.INVALID_REQUEST, "'id' has to be a text or a whole number")
    method, params = record.get("method"), record.get("params", {})
    if not isinstance(method, str):
        raise RpcError(Code.INVALID_REQUEST, "'method' has to be a text")
    if not isinstance(params, dict):
        raise RpcError(Code.INVALID_PARAMS, "'params' has to be an object")
    return method, params


def result(call_id: Id, value: Any) -> dict[str, Any]:
    """The answer to a call that succeeded."""
    return {"jsonrpc": "2.0", "id": call_id, "result": value}


def refusal(call_id: Id, error: RpcError) -> dict[str, Any]:
    """The answer to a call that failed."""
    return {"jsonrpc": "2.0", "id": call_id, "error": error.document()}
