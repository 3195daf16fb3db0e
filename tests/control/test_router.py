"""The router of the API: the operation of a request, what is checked of it and in which order, what is answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field
from starlette.responses import StreamingResponse

from postroom.control.bodies import MessageBody, RestartBody
from postroom.control.http_listener import WorkerDialer
from postroom.control.http_protocol import PRINCIPAL
from postroom.control.ops.table import As, Operation, Operations
from postroom.control.org_router import OrgRouter
from postroom.control.org_router import Scope as AsgiScope
from postroom.control.router import Router
from postroom.errors import NotFound, Unauthorized
from postroom.protocol.limits import MAX_BODY
from postroom.protocol.principal import USUAL_SCOPES, Principal, Scope
from tests.control.serving import DEADLINE

pytestmark = pytest.mark.anyio
UID = "a" * 32


class Api:
    """An API of some operations; it keeps what they were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.closed = asyncio.Event()
        self.waiting = asyncio.Event()
        router = OrgRouter(frozenset())
        router.open(Router(self, {}, self._operations()))  # ty: ignore[invalid-argument-type]
        router.admit(UID, "default")
        self.front = WorkerDialer(router)

    async def admit(self, scope: AsgiScope, _operation: Operation) -> Principal:
        """As `Gate.admit`."""
        if (b"authorization", b"Bearer key") not in scope["headers"]:
            raise Unauthorized("the API key is not valid")
        scope[PRINCIPAL] = Principal(UID, "default", "ann", "human", USUAL_SCOPES, "key")
        return scope[PRINCIPAL]

    def _operations(self) -> Operations:
        operations = Operations()

        @operations.post("/v1/messages", Scope.SEND, status=201)
        async def send(body: MessageBody, me: Principal) -> dict[str, Any]:
            self.calls.append(("send", body.to, body.text, body.expects_reply, me.nick))
            return {"to": body.to, "none": None, "far": float("inf"), "half": 0.5}

        @operations.get("/v1/messages/{message}", Scope.READ)
        async def show(
            message: str,
            wait: Literal["", "seen"] = "",
            timeout: Annotated[float, Field(ge=0, le=60)] = 30.0,
            *,
            only: Annotated[bool | None, As("open")] = None,
        ) -> dict[str, Any]:
            self.calls.append(("show", message, wait, timeout, only))
            if message == "absent":
                raise NotFound("there is no such message", remedy="look again")
            if message == "broken":
                raise ValueError("a fault of ours")
            return {"id": message}

        @operations.get("/v1/messages/all", Scope.READ)
        async def all_() -> dict[str, Any]:
            return {"id": "all of them"}

        @operations.post("/v1/messages/{message}/again", Scope.SEND)
        async def again(message: str, body: RestartBody | None = None) -> dict[str, Any]:
            self.calls.append(("again", message, body and body.wait))
            return {}

        @operations.delete("/v1/messages/{message}", Scope.SEND, status=204)
        async def drop(message: str) -> None:
            self.calls.append(("drop", message))

        @operations.get("/v1/messages/{message}/stream", Scope.READ)
        async def stream(message: str) -> StreamingResponse:
            async def pieces() -> AsyncIterator[str]:
                try:
                    yield "one\n"
                    yield f"{message} ü\n"
                    if message == "endless":
                        self.waiting.set()
                        await asyncio.Event().wait()
                finally:
                    self.closed.set()

            headers = {"Cache-Control": "no-store"}
            return StreamingResponse(pieces(), media_type="text/event-stream", headers=headers)

        return operations


KEY = "Authorization: Bearer key"
JSON = "Content-Type: application/json"


@pytest.fixture
def api() -> Api:
    return Api()


async def _raw(front: WorkerDialer, head: str, body: bytes) -> tuple[bytes, list[bytes], bytes]:
    """Status line, sorted headers, and body of an answer."""
    reader, writer = await front.dial(UID)
    lines = [*head.split("\n"), "Host: postroom", "Connection: close", "", ""]
    writer.write("\r\n".join(lines).encode() + body)
    async with asyncio.timeout(DEADLINE):
        answer = await reader.read()
    writer.close()
    top, _, rest = answer.partition(b"\r\n\r\n")
    status, *headers = top.split(b"\r\n")
    return status, sorted(headers), rest


def _post(body: bytes, *headers: str, announced: int | None = None) -> tuple[str, bytes]:
    size = len(body) if announced is None else announced
    return "\n".join(["POST /v1/messages HTTP/1.1", *headers, f"Content-Length: {size}"]), body


def _get(path: str, *headers: str) -> tuple[str, bytes]:
    return "\n".join([f"GET {path} HTTP/1.1", *headers]), b""


GOOD = json.dumps({"to": "@a", "text": "héllo", "expires_in": 3}).encode()
SENT = ("send", "@a", "héllo", True, "ann")
PLAIN: list[tuple[tuple[str, bytes], int, Any]] = [
    (_post(GOOD, KEY, JSON), 201, SENT),
    (_post(GOOD, KEY, "Content-Type: application/json; charset=utf-8"), 201, SENT),
    (_post(GOOD, KEY, "Content-Type: application/vnd.x+json"), 201, SENT),
    (_get("/v1/messages/abc", KEY), 200, ("show", "abc", "", 30.0, None)),
    (_get("/v1/messages/abc?", KEY), 200, ("show", "abc", "", 30.0, None)),
    (_get("/v1/messages/abc?wait=seen&timeout=1.5", KEY), 200, ("show", "abc", "seen", 1.5, None)),
    (_get("/v1/messages/abc?timeout=2&open=yes", KEY), 200, ("show", "abc", "", 2.0, True)),
    (_get("/v1/messages/abc?timeout=1&timeout=2", KEY), 200, ("show", "abc", "", 2.0, None)),
    (_get("/v1/messages/abc?timeout=%31", KEY), 200, ("show", "abc", "", 1.0, None)),
    (_get("/v1/messages/abc?other=1&only=1", KEY), 200, ("show", "abc", "", 30.0, None)),
    (_get("/v1/messages/all", KEY), 200, None),
    (("POST /v1/messages/abc/again HTTP/1.1\n" + KEY, b""), 200, ("again", "abc", None)),
    (("DELETE /v1/messages/abc HTTP/1.1\n" + KEY, b""), 204, ("drop", "abc")),
]
REFUSED = [
    (_post(GOOD, JSON), 401),
    (_post(GOOD, "Authorization: Bearer other", JSON), 401),
    (_post(GOOD, KEY), 422),
    (_post(GOOD, KEY, "Content-Type: text/plain"), 422),
    (_post(b"", KEY, JSON), 422),
    (_post(b"{", KEY, JSON), 422),
    (_post(b"null", KEY, JSON), 422),
    (_post(b"[]", KEY, JSON), 422),
    (_post(b"{}", KEY, JSON), 422),
    (_post(b'{"to": "@a", "text": "x", "more": 1}', KEY, JSON), 422),
    (_post(b'{"to": "@a", "text": "x", "expires_in": NaN}', KEY, JSON), 422),
    (_post(b'{"to": "@a", "text": "x", "expires_in": -1}', KEY, JSON), 422),
    (_post(b'{"to": "@a", "text": "\\ud800"}', KEY, JSON), 422),
    (_post(b'{"to": "@a", "text": "x"}'.decode().encode("utf-16"), KEY, JSON), 422),
    (_post(b'"' + b"\xff" + b'"', KEY, JSON), 422),
    (_post(b"[" * 3000, KEY, JSON), 422),
    (_get("/v1/messages/abc?wait=never", KEY), 422),
    (_get("/v1/messages/abc?timeout=61", KEY), 422),
    (_get("/v1/messages/abc?timeout=nan", KEY), 422),
    (_get("/v1/messages/abc?timeout=", KEY), 422),
    (_get("/v1/messages/", KEY), 404),
    (_get("/v1/messages/abc/", KEY), 404),
    (_get("/v1/messages/a%2Fb", KEY), 404),
    (_get("/v1/messages/absent", KEY), 404),
    (_get("/v1/messages/abc"), 401),
    (_get("/v1/messages/abc?timeout=61"), 401),
    (_get("/v1/none", KEY), 404),
    (("PUT /v1/messages/abc HTTP/1.1\n" + KEY, b""), 405),
    (("HEAD /v1/messages/abc HTTP/1.1\n" + KEY, b""), 405),
]


@pytest.mark.parametrize("asked, status, call", PLAIN)
async def test_an_operation_gets_the_checked_values_of_path_query_and_body(
    api: Api, asked: tuple[str, bytes], status: int, call: Any
):
    line, headers, body = await _raw(api.front, *asked)

    assert line.split()[1] == b"%d" % status
    assert api.calls == ([call] if call else [])
    if status == 204:
        assert body == b""
        assert not any(each.lower().startswith(b"content-type") for each in headers)
    else:
        assert b"content-type: application/json" in headers


async def test_a_number_that_json_has_not_is_null(api: Api):
    _, _, body = await _raw(api.front, *_post(GOOD, KEY, JSON))

    assert json.loads(body) == {"to": "@a", "none": None, "far": None, "half": 0.5}


@pytest.mark.parametrize("asked, status", REFUSED)
async def test_what_is_not_as_it_has_to_be_reaches_no_operation(
    api: Api, asked: tuple[str, bytes], status: int
):
    line, headers, _ = await _raw(api.front, *asked)

    assert line.split()[1] == b"%d" % status
    assert b"content-type: application/problem+json" in headers
    assert [call[0] for call in api.calls] == (["show"] if b"absent" in asked[0].encode() else [])


async def test_a_refusal_names_the_field_and_where_in_it_the_fault_is(api: Api):
    async def told(head: str, body: bytes) -> str:
        return json.loads((await _raw(api.front, head, body))[2])["detail"]

    assert (await told(*_get("/v1/messages/abc?timeout=61", KEY))).startswith("query.timeout: ")
    assert (await told(*_post(b'{"text": "x"}', KEY, JSON))) == "to: Field required"
    assert (await told(*_post(b"", KEY, JSON))) == "the body: Field required"
    assert (await told(*_post(b'{"to": "@a", "parts": [1]}', KEY, JSON))).startswith("parts.0: ")


async def test_an_address_that_is_a_word_comes_before_one_that_is_a_field(api: Api):
    _, _, body = await _raw(api.front, *_get("/v1/messages/all", KEY))

    assert json.loads(body) == {"id": "all of them"}


async def test_a_body_in_pieces_is_one_body(api: Api):
    text = json.dumps({"to": "@a", "text": "x" * 300_000}).encode()

    line, _, _ = await _raw(api.front, *_post(text, KEY, JSON))

    assert line.startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("announced", [None, 10**9])
async def test_a_body_over_the_limit_is_refused(api: Api, announced: int | None):
    text = json.dumps({"to": "@a", "text": "x" * MAX_BODY}).encode()

    line, _, _ = await _raw(api.front, *_post(text, KEY, JSON, announced=announced))

    assert line.startswith(b"HTTP/1.1 413 ")
    assert api.calls == []


async def test_a_fault_of_ours_is_answered_and_logged(api: Api, caplog: pytest.LogCaptureFixture):
    status, _, body = await _raw(api.front, *_get("/v1/messages/broken", KEY))

    assert status.startswith(b"HTTP/1.1 500 ")
    assert b"a fault of ours" not in body
    assert "GET /v1/messages/broken failed" in caplog.text


async def test_the_stream_of_a_reader_that_goes_is_closed(api: Api):
    _, writer = await api.front.dial(UID)
    path = "/v1/messages/endless/stream"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: postroom\r\n{KEY}\r\n\r\n".encode())
    async with asyncio.timeout(DEADLINE):
        await api.waiting.wait()
        writer.close()
        await api.closed.wait()
