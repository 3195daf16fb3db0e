"""A call of A2A as a request over HTTP, and what its answer means, for each binding and version. Pure.

An answer may be server-sent events, which come as pieces of bytes (WHATWG HTML, section 9.2).
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from postroom_a2a import strict_json
from postroom_a2a.bounds import MAX_LEVELS, MAX_VALUES
from postroom_a2a.errors import (
    CallerError,
    Conflict,
    ContentNotTaken,
    Forbidden,
    InvalidInput,
    MessageTooLarge,
    NotFound,
    PeerError,
    PostroomError,
    ProtocolViolation,
    Refused,
    Unauthorized,
)
from postroom_a2a.http import v03
from postroom_a2a.http.client_cards import JSONRPC, Interface
from postroom_a2a.http.client_port import HttpRequest
from postroom_a2a.http.paths import BY_METHOD
from postroom_a2a.retry import Again, Failure, RetryPolicy, retry_after
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.text import one_line

_END = re.compile(rb"[\r\n]")
_NOISE = re.compile(rb"(?:[\r\n]|:[^\r\n]*[\r\n])*")
"""Ends of lines and comments, where no event has begun."""


FRUITLESS = 100_000
"""Lines after which a stream without an event is given up; comments that stand alone do not count."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """An event; `id` is that of the last event that had one."""

    data: str
    kind: str = "message"
    id: str = ""


class EventReader:
    """Reads the events of one stream.

    Args:
        most: bytes of one event.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()
        self._seen = 0
        self._data: list[str] = []
        self._size = 0
        self._kind = ""
        self._id = ""
        self._begun = False
        self._skip_feed = False
        self._fruitless = 0

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """The events that `piece` completes.

        Raises:
            ProtocolViolation: an event is too long, or not UTF-8; or many lines are no event.
        """
        self._rest += piece
        for line in self._lines():
            if (event := self._line(line)) is not None:
                yield event
        if self._size + len(self._rest) > self._most:
            raise ProtocolViolation(f"an event of the stream is over {self._most} bytes")

    def _lines(self) -> Iterator[bytes]:
        """The whole lines; a stream of ends and comments costs no more than one search."""
        rest, at = self._rest, 0
        try:
            while True:
                if (
                    self._skip_feed and rest[at : at + 1] == b"\n"
                ):  # the second half of an end that was cut
                    at += 1
                    self._seen = max(self._seen, at)
                if at < len(rest):
                    self._skip_feed = False
                if self._begun and not self._data and not self._size:
                    noise = _NOISE.match(rest, at)
                    if noise is not None and noise.end() > at:
                        at = self._seen = noise.end()
                        self._skip_feed = rest[at - 1 : at] == b"\r"
                        continue
                end = _END.search(rest, max(self._seen, at))
                if end is None:
                    self._seen = len(rest)
                    return
                line = bytes(rest[at : end.start()])
                self._skip_feed = end[0] == b"\r"
                at = self._seen = end.end()
                yield line
        finally:
            del rest[:at]
            self._seen = max(0, self._seen - at)

    def _line(self, line: bytes) -> ServerEvent | None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(b"\xef\xbb\xbf")
        self._fruitless += 1
        if self._fruitless > FRUITLESS and not self._data:
            raise ProtocolViolation(f"the stream has {FRUITLESS} lines without an event")
        if not line:
            return self._ended()
        if line.startswith(b":"):
            return None
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        self._size += len(value) + 1
        if self._size > self._most:
            raise ProtocolViolation(f"an event of the stream is over {self._most} bytes")
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            raise ProtocolViolation("an event of the stream is not UTF-8") from error
        if name == b"data":
            self._data.append(text)
        elif name == b"event":
            self._kind = text
        elif name == b"id" and "\0" not in text:
            self._id = text
        return None

    def _ended(self) -> ServerEvent | None:
        data, kind = self._data, self._kind
        self._data, self._kind, self._size = [], "", 0
        if not data:
            return None
        self._fruitless = 0
        return ServerEvent("\n".join(data), kind or "message", self._id)


Params = dict[str, Any]

STREAMING = frozenset({"SendStreamingMessage", "SubscribeToTask"})
WRITING = frozenset(
    {
        *("SendMessage", "SendStreamingMessage", "CancelTask"),
        *("CreateTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"),
    }
)


def may_repeat(method: str, params: Params) -> bool:
    """Whether a second call has no second effect: what begins something has the id that makes it one."""
    match method:
        case "SendMessage" | "SendStreamingMessage":
            return bool(params.get("message", {}).get("messageId"))
        case "CreateTaskPushNotificationConfig":
            return bool(params.get("id"))
    return True


_STEM = secrets.token_hex(4)
_COUNT = itertools.count(1)


def request_of(
    to: Interface,
    method: str,
    params: Params,
    headers: Mapping[str, str],
    silence: float,
    last_event: str = "",
) -> HttpRequest:
    """The request of a call, whose method and parameters are those of A2A 1.0.

    Args:
        headers: of the caller, such as its credential.
        last_event: id of the last event of a stream that goes on, "" for none.
    """
    accept = "text/event-stream" if method in STREAMING else "application/json"
    known = {"accept": accept, "a2a-version": to.version, **headers}
    if last_event:
        known["last-event-id"] = last_event
    if to.binding == JSONRPC:
        return _rpc_request(to, method, params, known, silence)
    return _rest_request(to, method, params, known, silence)


def _rpc_request(
    to: Interface, method: str, params: Params, headers: dict[str, str], silence: float
) -> HttpRequest:
    if to.version == "0.3":
        method, params = v03.request_down(method, params)
    elif to.tenant:
        params = {"tenant": to.tenant, **params}
    call = {"jsonrpc": "2.0", "id": f"{_STEM}-{next(_COUNT)}", "method": method, "params": params}
    headers["content-type"] = "application/json"
    return HttpRequest("POST", to.url, headers, strict_json.dumps(call), silence)


def _rest_request(
    to: Interface, method: str, params: Params, headers: dict[str, str], silence: float
) -> HttpRequest:
    route = BY_METHOD[method]
    path, rest = route.url(params)
    tenant = f"/{quote(to.tenant, safe='')}" if to.tenant else ""
    url = f"{to.url.rstrip('/')}{tenant}{path}"
    if route.verb == "POST":
        headers["content-type"] = "application/json"
        return HttpRequest(route.verb, url, headers, strict_json.dumps(rest), silence)
    query = {name: _in_query(value) for name, value in rest.items() if value is not None}
    return HttpRequest(
        route.verb, f"{url}?{urlencode(query)}" if query else url, headers, b"", silence
    )


def _in_query(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ── answers ──────────────────────────────────────────────────────────────────────────────────────────


def result_of(to: Interface, method: str, body: bytes) -> Any:
    """The result in the body of an answer without an error status, as A2A 1.0 has it.

    Raises:
        RpcError: the error that it reports.
        ProtocolViolation: it is not an answer.
    """
    document = _document(body)
    if to.binding != JSONRPC:
        return document
    if "error" in document:
        raise RpcError.read(document["error"])
    if "result" not in document and document.get("jsonrpc") != "2.0":
        raise ProtocolViolation("the answer has neither a result nor an error")
    result = document.get("result")  # some servers leave out one that is null
    if to.version == "0.3":
        return v03.answer_up(method, result)
    return result


def event_of(to: Interface, data: str) -> dict[str, Any]:
    """A StreamResponse of A2A 1.0 in the data of a server-sent event.

    Raises:
        RpcError: the error that ends the stream.
        ProtocolViolation: it is none.
    """
    document = _document(data.encode("utf-8", "surrogatepass"))
    if "error" in document and (to.binding == JSONRPC or "code" in _object(document["error"])):
        raise _reported(document) or RpcError.read(document["error"])
    event = document
    if to.binding == JSONRPC:
        event = document.get("result")
        if to.version == "0.3":
            event = v03.event_up(event)
    if not isinstance(event, dict) or not any(
        isinstance(event.get(kind), dict)
        for kind in ("task", "message", "statusUpdate", "artifactUpdate")
    ):
        raise ProtocolViolation("an event of the stream is no StreamResponse of A2A")
    return event


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = strict_json.bounded(body, MAX_LEVELS, MAX_VALUES) if body.strip() else {}
    except strict_json.TooMuch as error:
        raise ProtocolViolation(f"the answer is too much: {error}") from error
    except ValueError as error:
        raise ProtocolViolation("the answer is not JSON") from error
    if not isinstance(document, dict):
        raise ProtocolViolation("the answer is not a JSON object")
    return document


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────

_TYPES: dict[Code, type[PostroomError]] = {
    Code.TASK_NOT_FOUND: NotFound,
    Code.TASK_NOT_CANCELABLE: Conflict,
    Code.PUSH_NOTIFICATION_NOT_SUPPORTED: Conflict,
    Code.UNSUPPORTED_OPERATION: Conflict,
    Code.CONTENT_TYPE_NOT_SUPPORTED: ContentNotTaken,
    Code.INVALID_AGENT_RESPONSE: PeerError,
    Code.EXTENDED_AGENT_CARD_NOT_CONFIGURED: NotFound,
    Code.EXTENSION_SUPPORT_REQUIRED: Conflict,
    Code.VERSION_NOT_SUPPORTED: Conflict,
    Code.SERVER_BUSY: Refused,
    Code.INVALID_REQUEST: InvalidInput,
    Code.METHOD_NOT_FOUND: Conflict,
    Code.INVALID_PARAMS: InvalidInput,
    Code.INTERNAL_ERROR: PeerError,
    Code.PARSE_ERROR: InvalidInput,
}

_STATUSES: dict[int, type[PostroomError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: MessageTooLarge,
    415: ContentNotTaken,
    422: InvalidInput,
    429: Refused,
}


def typed(error: RpcError) -> PostroomError:
    """The error of this library's tree for an error that an agent answered; `__cause__` is that error."""
    kind = _TYPES.get(error.code, PeerError) if isinstance(error.code, Code) else PeerError
    said = one_line(error.message, 300) or "no reason given"
    name = error.code.name if isinstance(error.code, Code) else str(error.code)
    made = kind(f"the agent answered {name}: {said}")
    made.__cause__ = error
    return made


def code_of(error: BaseException) -> int:
    """The code of the A2A error behind `error`, 0 for none."""
    cause = error.__cause__
    return int(cause.code) if isinstance(cause, RpcError) else 0


def refusal_of(
    status: int, headers: Mapping[str, str], body: bytes, policy: RetryPolicy
) -> Failure:
    """The failure that an answer with an error status, or with a redirect, reports."""
    if status < 400:
        place = one_line(headers.get("location", "nowhere"), 200)
        text = f"the server sends on to {place}, and no redirect is followed"
        return Failure(CallerError(text, remedy="give that address"), Again.NEVER)
    waits = headers.get("retry-after")
    again = Again.after(status, retry_after=waits is not None, patient=policy.patient)
    wait = retry_after(waits) if waits and policy.patient and again is Again.ALWAYS else 0.0
    return Failure(_error_of(status, body), again, wait=wait)


def _error_of(status: int, body: bytes) -> PostroomError:
    try:
        document = _document(body)
    except ProtocolViolation:
        document = {}
    reported = _reported(document)
    if reported is not None and isinstance(reported.code, Code) and status not in (401, 403, 429):
        return typed(reported)
    kind = _STATUSES.get(status, PeerError if status >= 500 else CallerError)
    said = reported.message if reported is not None else document.get("detail") or ""
    said = one_line(str(said), 300)
    return kind(f"the server answered {status}{': ' + said if said else ''}")


def _reported(document: dict[str, Any]) -> RpcError | None:
    """The error in an error document of either binding."""
    error = _object(document.get("error"))
    if not error:
        return None
    found = RpcError.read(error)
    for detail in [*_objects(error.get("details")), *_objects(error.get("data"))]:
        reason = str(detail.get("reason", "")).upper()
        if reason in Code.__members__:
            return RpcError(Code[reason], found.message, found.data)
    return found if found.message or isinstance(found.code, Code) else None


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
