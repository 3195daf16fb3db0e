r"""The frames of the binding: JSON of the wire `a2a-nats/1`, and protobuf for peers of A2A 1.0. Pure.

A JSON frame has its members in a fixed order and no others; a reader ignores further members. A binary frame is a zero
byte, a JSON object on one line (the head), and the message as protobuf:

    \x00{"id":"7f","method":"SendMessage"}\n<SendMessageRequest>
    \x00{"id":"7f"}\n<SendMessageResponse>
    \x00{"id":"7f","error":{"code":-32001,"message":"Task not found"}}\n

None of the optional NATS headers changes a frame, so a peer may ignore them all. Rules: docs/binding.md, Frames, and
Extensions in headers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom_a2a.ecma_json import dumps, loads
from postroom_a2a.errors import ProtocolViolation
from postroom_a2a.operations import Call
from postroom_a2a.rpc import Code, Id, RpcError, id_of

DEADLINE = "A2A-Deadline"
"""Of a request: milliseconds since the epoch after which nobody waits for the answer."""

STREAM = "A2A-Stream"
"""Of a request for a stream: the client's `Flow`. Without it a server sends only frames."""

SEQUENCE = "A2A-Sequence"
"""Of each frame of a stream: 1, 2, 3, ... A gap means that a frame was lost."""

BEAT = "A2A-Beat"
"""Of an empty message in a stream, the server's heartbeat to a client that sent `STREAM`. Value: the last sequence."""

LANE = "A2A-Lane"
"""Of a stored response: the server's subject for calls that overtake others (get, cancel, ...)."""

CONTENT = "urn:postroom:a2a:large-content:1"
"""Extension (service parameter `A2A-Extensions`): the client can fetch parts by reference."""

MAX_INSTANT = 2**53
"""Milliseconds since the epoch; a later deadline counts as no deadline."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A client's flow control for a stream.

    Attributes:
        window: most unacknowledged frames; 0 for any number.
        beat: seconds between the server's heartbeats; 0 for none.
    """

    window: int = 0
    beat: float = 0.0

    def header(self) -> str:
        """The value of the header `STREAM`: `window=32;beat=10`."""
        return f"window={self.window};beat={self.beat:g}"

    @classmethod
    def read(cls, value: str) -> Flow:
        """The flow in a header; an unreadable part counts as absent."""
        said = dict(part.strip().partition("=")[::2] for part in value.split(";"))
        return cls(int(_number(said.get("window", ""))), _number(said.get("beat", "")))


def deadline_of(headers: Mapping[str, str] | None) -> float:
    """The deadline of a request, seconds since the epoch; 0 for none."""
    return _number((headers or {}).get(DEADLINE, "")) / 1000


def milliseconds(deadline: float) -> int:
    """A deadline (seconds since the epoch) in milliseconds; 0 for none or an impossible one."""
    return int(deadline * 1000) if 0 < deadline < MAX_INSTANT / 1000 else 0


def sequence_of(headers: Mapping[str, str] | None) -> int:
    """The number of a frame in its stream; 0 from a peer that does not count."""
    return int(_number((headers or {}).get(SEQUENCE, "")))


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if 0 <= number < MAX_INSTANT else 0.0


PROTOCOL = "a2a-nats/1"

RESPONSE = "response"
COMPLETE = "complete"
TRANSPORT_ERROR = "transport-error"

BINARY = b"\x00"

_V10 = {"A2A-Version": "1.0"}
"""What nearly every JSON request states."""

# Heads as this library writes them for nearly every call; a head of another form goes through the JSON reader.
_PLAIN_REQUEST = re.compile(rb'\x00\{"id":"([\w-]{1,64})","method":"([A-Za-z]{1,64})"\}\n')
_PLAIN_RESPONSE = re.compile(rb'\x00\{(?:"kind":"(response)",)?"id":"([\w-]{1,64})"\}\n')
_NO_FRAME = "the message is not an A2A request frame"


@dataclass(slots=True)
class Request:
    """A call on the wire.

    Attributes:
        params: JSON value, None for none; bytes of protobuf in a binary frame.
        response_subject: the subject for a stored answer; "" for the reply subject.
        deadline: seconds since the epoch after which nobody waits, 0 for none; a JSON request states it in a header.
    """

    id: Id
    method: str
    params: Any = None
    binary: bool = False
    parameters: Mapping[str, str] = field(default_factory=dict)
    response_subject: str = ""
    deadline: float = 0.0

    def call(self, caller: str, deadline: float) -> Call:
        """The call in this request; `deadline` is in seconds since the epoch, 0 for none."""
        return Call(
            self.id,
            self.method,
            self.params,
            self.binary,
            self.parameters,
            caller,
            deadline=deadline,
        )


@dataclass(slots=True)
class Response:
    """An answer on the wire.

    Attributes:
        kind: of a stream frame; "" for a bare JSON-RPC response.
        result: JSON value, or bytes of protobuf; None for none.
    """

    id: Id
    kind: str = ""
    result: Any = None
    error: RpcError | None = None
    binary: bool = False


class BadRequest(ProtocolViolation):
    """A payload that is not a request.

    Args:
        error: the answer to it.
        call_id: None where it could not be read.
    """

    def __init__(self, error: RpcError, call_id: Id = None, *, binary: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.id = call_id
        self.binary = binary


def _id(call_id: Id) -> bytes:
    """An id as JSON; a whole number keeps all its digits, which ECMAScript would round."""
    return b"%d" % call_id if type(call_id) is int else dumps(call_id)


# ── requests ─────────────────────────────────────────────────────────────────────────────────────────


def encode_request(request: Request) -> bytes:
    """The frame of a request; `params` of a JSON frame may be JSON text already."""
    if request.binary:
        return _encode_binary_request(request)
    params = request.params
    if params is None:
        params = b""
    elif not isinstance(params, bytes):
        params = dumps(params)
    parts = [
        b'{"protocol":"a2a-nats/1","request":{"jsonrpc":"2.0","method":',
        dumps(request.method),
        b',"params":' if params else b"",
        params,
        b',"id":',
        _id(request.id),
        b"}",
    ]
    if request.parameters == _V10:
        parts.append(b',"serviceParameters":{"A2A-Version":"1.0"}')
    elif request.parameters:
        parts += [b',"serviceParameters":', dumps(dict(request.parameters))]
    if request.response_subject:
        parts += [b',"responseSubject":', dumps(request.response_subject)]
    parts.append(b"}")
    return b"".join(parts)


def _encode_binary_request(request: Request) -> bytes:
    if not request.parameters and not request.response_subject and not request.deadline:
        return b'\x00{"id":%b,"method":%b}\n%b' % (
            _id(request.id),
            dumps(request.method),
            request.params or b"",
        )
    head: dict[str, Any] = {"id": request.id, "method": request.method}
    if request.parameters:
        head["serviceParameters"] = dict(request.parameters)
    if request.response_subject:
        head["responseSubject"] = request.response_subject
    if deadline := milliseconds(request.deadline):
        head["deadline"] = deadline
    return b"".join((BINARY, dumps(head), b"\n", request.params or b""))


def decode_request(payload: bytes) -> Request:
    """The request in a payload: framed, a bare JSON-RPC request, or a binary frame; unknown members are ignored.

    Raises:
        BadRequest: the payload is not a request.
    """
    if payload.startswith(BINARY):
        return _decode_binary_request(payload)
    try:
        frame = loads(payload)
    except ValueError as error:
        raise BadRequest(RpcError(Code.PARSE_ERROR, "the message is not JSON")) from error
    if not isinstance(frame, dict):
        raise BadRequest(RpcError(Code.INVALID_REQUEST, _NO_FRAME))
    if "protocol" not in frame and "jsonrpc" in frame:
        return _request_of(frame, {})
    call = frame.get("request")
    if frame.get("protocol") != PROTOCOL or not isinstance(call, dict):
        raise BadRequest(
            RpcError(Code.INVALID_REQUEST, f"{_NO_FRAME} of {PROTOCOL}"), id_of(call or frame)
        )
    return _request_of(call, frame)


def _request_of(call: dict[str, Any], frame: dict[str, Any]) -> Request:
    call_id, method = call.get("id"), call.get("method")
    if call_id is not None and (isinstance(call_id, bool) or not isinstance(call_id, (str, int))):
        raise BadRequest(RpcError(Code.INVALID_REQUEST, "'id' has to be a text or a whole number"))
    if call.get("jsonrpc") != "2.0" or not isinstance(method, str):
        raise BadRequest(
            RpcError(Code.INVALID_REQUEST, f"{_NO_FRAME}: it is not JSON-RPC 2.0"), call_id
        )
    subject = frame.get("responseSubject")
    return Request(
        call_id,
        method,
        call.get("params"),
        parameters=_parameters(frame.get("serviceParameters")),
        response_subject=subject if isinstance(subject, str) else "",
    )


def _decode_binary_request(payload: bytes) -> Request:
    if plain := _PLAIN_REQUEST.match(payload):
        call_id, method = plain[1].decode(), plain[2].decode()
        return Request(call_id, method, payload[plain.end() :], binary=True)
    head, body = _split(payload)
    if head is None:
        raise BadRequest(RpcError(Code.PARSE_ERROR, "the frame has no head"), binary=True)
    call_id, method = id_of(head), head.get("method")
    if not isinstance(method, str):
        error = RpcError(Code.INVALID_REQUEST, "the head names no method")
        raise BadRequest(error, call_id, binary=True)
    subject, deadline = head.get("responseSubject"), head.get("deadline")
    return Request(
        call_id,
        method,
        body,
        binary=True,
        parameters=_parameters(head.get("serviceParameters")),
        response_subject=subject if isinstance(subject, str) else "",
        deadline=deadline / 1000 if type(deadline) is int and 0 < deadline < MAX_INSTANT else 0.0,
    )


def _parameters(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {name: each for name, each in value.items() if isinstance(each, str)}


def _split(payload: bytes) -> tuple[dict[str, Any] | None, bytes]:
    line, mark, body = payload[1:].partition(b"\n")
    try:
        head = loads(line) if mark else None
    except ValueError:
        head = None
    return (head if isinstance(head, dict) else None), body


# ── responses ────────────────────────────────────────────────────────────────────────────────────────


def encode_result(call_id: Id, result: bytes, *, binary: bool = False) -> bytes:
    """The bare response with a result (JSON text or protobuf)."""
    if binary:
        return b"".join((b'\x00{"id":', _id(call_id), b"}\n", result))
    return b"".join((b'{"jsonrpc":"2.0","id":', _id(call_id), b',"result":', result, b"}"))


def encode_error(call_id: Id, error: RpcError, *, binary: bool = False) -> bytes:
    """The bare response with an error."""
    document = dumps(error.document())
    if binary:
        return b"".join((b'\x00{"id":', _id(call_id), b',"error":', document, b"}\n"))
    return b"".join((b'{"jsonrpc":"2.0","id":', _id(call_id), b',"error":', document, b"}"))


def encode_stream_frame(response: bytes, *, binary: bool = False) -> bytes:
    """A bare response (by `encode_result` or `encode_error`) as a frame of a stream."""
    if binary:
        return b'\x00{"kind":"response",' + response[2:]
    return b"".join((b'{"protocol":"a2a-nats/1","kind":"response","response":', response, b"}"))


def encode_complete(call_id: Id, *, binary: bool = False) -> bytes:
    """The last frame of a stream."""
    if binary:
        return b"".join((b'\x00{"kind":"complete","id":', _id(call_id), b"}\n"))
    return b"".join((b'{"protocol":"a2a-nats/1","kind":"complete","id":', _id(call_id), b"}"))


def decode_response(payload: bytes) -> Response:
    """The response in a payload: bare, or a stream frame.

    Raises:
        ProtocolViolation: the payload is not a response.
    """
    if payload.startswith(BINARY):
        return _decode_binary_response(payload)
    try:
        frame = loads(payload)
    except ValueError as error:
        raise ProtocolViolation("the answer is not JSON") from error
    if not isinstance(frame, dict):
        raise ProtocolViolation("the answer is not a JSON object")
    if "kind" not in frame and frame.get("jsonrpc") == "2.0":
        return _response_of(frame, "")
    if frame.get("protocol") != PROTOCOL:
        if "stream" in frame and "seq" in frame:
            raise ProtocolViolation(
                f"the JetStream stream {frame['stream']!r} took the call, and its receipt came in place of an answer",
                remedy="take the subject out of that stream",
            )
        raise ProtocolViolation(f"the answer is not a frame of {PROTOCOL}")
    match frame.get("kind"), frame.get("response"):
        case "response", dict() as response:
            return _response_of(response, RESPONSE)
        case "complete", _:
            return Response(id_of(frame), COMPLETE)
        case "transport-error", _:
            said = frame.get("message")
            text = said if isinstance(said, str) else "the stream failed"
            return Response(
                id_of(frame), TRANSPORT_ERROR, error=RpcError(Code.INTERNAL_ERROR, text)
            )
    raise ProtocolViolation("the answer is a frame of no known kind")


def _response_of(response: dict[str, Any], kind: str) -> Response:
    error = response.get("error")
    if error is not None:
        return Response(id_of(response), kind, error=RpcError.read(error))
    return Response(id_of(response), kind, response.get("result"))


def _decode_binary_response(payload: bytes) -> Response:
    if plain := _PLAIN_RESPONSE.match(payload):
        kind = RESPONSE if plain[1] else ""
        return Response(plain[2].decode(), kind, payload[plain.end() :], binary=True)
    head, body = _split(payload)
    if head is None:
        raise ProtocolViolation("the answer is a binary frame without a head")
    kind = head.get("kind", "")
    if kind not in ("", RESPONSE, COMPLETE):
        raise ProtocolViolation("the answer is a frame of no known kind")
    if "error" in head:
        return Response(id_of(head), kind, error=RpcError.read(head["error"]), binary=True)
    return Response(id_of(head), kind, None if kind == COMPLETE else body, binary=True)
