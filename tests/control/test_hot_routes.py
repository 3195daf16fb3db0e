"""The hot routes answer as the framework does, request by request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal

import pytest
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import StreamingResponse

from postroom.control.api import _answer_problems, _failure
from postroom.control.bodies import MessageBody
from postroom.control.hot_routes import HotRoutes, hot
from postroom.control.http_listener import WorkerDialer
from postroom.control.http_protocol import PRINCIPAL
from postroom.control.org_router import OrgRouter, Receive, Scope, Send
from postroom.control.principals import Caller
from postroom.errors import NotFound, Unauthorized
from postroom.protocol.limits import MAX_BODY
from postroom.protocol.principal import USUAL_SCOPES, Principal
from tests.control.serving import DEADLINE

pytestmark = pytest.mark.anyio
UID = "a" * 32


class Twice:
    """One API, once behind its hot routes and once without them; it keeps what its functions were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.closed = asyncio.Event()
        self.waiting = asyncio.Event()
        self.slow = 0
        self._app = FastAPI(dependencies=[Depends(_admitted)])
        _answer_problems(self._app)
        self._hot = HotRoutes(_admit, _failure)
        routes = self._routes()
        self._app.include_router(routes, prefix="/v1")
        self._hot.add(routes, "/v1")

    def front(self, *, hot: bool) -> WorkerDialer:
        """What serves it, with or without the hot routes."""
        router = OrgRouter(frozenset())
        router.open(self._count, hot=self._hot.answer if hot else None)
        router.admit(UID, "default")
        return WorkerDialer(router)

    async def _count(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.slow += 1
        await self._app(scope, receive, send)

    def _routes(self) -> APIRouter:
        routes = APIRouter()

        @routes.post("/messages", status_code=201)
        @hot
        async def send(body: MessageBody, me: Caller) -> dict[str, Any]:
            self.calls.append(("send", body, me))
            return body.model_dump() | {"none": None, "far": float("inf"), "half": 0.5}

        @routes.get("/messages/{message}")
        @hot
        async def show(
            message: str,
            wait: Literal["", "seen"] = "",
            timeout: Annotated[float, Query(ge=0, le=60)] = 30.0,
            *,
            only: Annotated[bool | None, Query(alias="open")] = None,
        ) -> dict[str, Any]:
            self.calls.append(("show", message, wait, timeout, only))
            if message == "absent":
                raise NotFound("there is no such message", remedy="look again")
            if message == "broken":
                raise ValueError("a fault of ours")
            return {"id": message}

        @routes.get("/messages/{message}/stream")
        @hot
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

        @routes.get("/cold/{message}")
        async def cold(message: str) -> dict[str, Any]:
            return {"cold": message}

        return routes


async def _admit(scope: Scope, _endpoint: Callable[..., Any]) -> Principal:
    if (b"authorization", b"Bearer key") not in scope["headers"]:
        raise Unauthorized("the API key is not valid")
    scope[PRINCIPAL] = Principal(UID, "default", "ann", "human", USUAL_SCOPES, "key")
    return scope[PRINCIPAL]


async def _admitted(request: Request) -> None:
    await _admit(request.scope, _admitted)


KEY = "Authorization: Bearer key"
JSON = "Content-Type: application/json"


@pytest.fixture
def twice() -> Twice:
    return Twice()


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
PLAIN = [
    _post(GOOD, KEY, JSON),
    _post(b'{"to": "@a", "text": "x", "expects_reply": "no"}', KEY, JSON),
    _get("/v1/messages/abc", KEY),
    _get("/v1/messages/abc?", KEY),
    _get("/v1/messages/abc?wait=seen&timeout=1.5", KEY),
    _get("/v1/messages/abc?timeout=2&open=true", KEY),
    _get("/v1/messages/absent", KEY),
    _get("/v1/messages/abc/stream", KEY),
]
UNUSUAL = [
    _post(GOOD, JSON),
    _post(GOOD, "Authorization: Bearer other", JSON),
    _post(GOOD, KEY),
    _post(GOOD, KEY, "Content-Type: text/plain"),
    _post(GOOD, KEY, "Content-Type: application/json; charset=utf-8"),
    _post(GOOD, KEY, "Content-Type: application/vnd.x+json"),
    _post(b"", KEY, JSON),
    _post(b"{", KEY, JSON),
    _post(b"null", KEY, JSON),
    _post(b"[]", KEY, JSON),
    _post(b"{}", KEY, JSON),
    _post(b'{"to": "@a", "text": "x", "more": 1}', KEY, JSON),
    _post(b'{"to": "@a", "text": "x", "expires_in": NaN}', KEY, JSON),
    _post(b'{"to": "@a", "text": "x", "expires_in": 1e999}', KEY, JSON),
    _post(b'{"to": "@a", "text": "x", "expires_in": -1}', KEY, JSON),
    _post(b'{"to": "@a", "text": "\\ud800"}', KEY, JSON),
    _post(b'{"to": "@a", "text": "x"}'.decode().encode("utf-16"), KEY, JSON),
    _post(b'"' + b"\xff" + b'"', KEY, JSON),
    _post(b"[" * 3000, KEY, JSON),
    _get("/v1/messages/abc?wait=never", KEY),
    _get("/v1/messages/abc?timeout=61", KEY),
    _get("/v1/messages/abc?timeout=nan", KEY),
    _get("/v1/messages/abc?timeout=", KEY),
    _get("/v1/messages/abc?timeout=1&timeout=2", KEY),
    _get("/v1/messages/abc?timeout=%31", KEY),
    _get("/v1/messages/abc?other=1", KEY),
    _get("/v1/messages/abc?only=1", KEY),
    _get("/v1/messages/", KEY),
    _get("/v1/messages/abc/", KEY),
    _get("/v1/messages/a%2Fb", KEY),
    _get("/v1/messages/abc"),
    _get("/v1/messages/abc?timeout=61"),
    _get("/v1/cold/abc", KEY),
    _get("/v1/none", KEY),
    ("DELETE /v1/messages/abc HTTP/1.1\n" + KEY, b""),
    ("HEAD /v1/messages/abc HTTP/1.1\n" + KEY, b""),
]


async def _both(twice: Twice, head: str, body: bytes) -> tuple[Any, Any, int]:
    """What the plain and the fast API answer, and how many requests the framework had of the second."""
    found, calls = [], []
    for shortened in (False, True):
        twice.calls.clear()
        twice.slow = 0
        found.append(await _raw(twice.front(hot=shortened), head, body))
        calls.append(list(twice.calls))
    assert calls[0] == calls[1]
    return found[0], found[1], twice.slow


@pytest.mark.parametrize("head, body", PLAIN)
async def test_a_plain_request_is_answered_the_same_without_the_framework(
    twice: Twice, head: str, body: bytes
):
    plain, fast, slow = await _both(twice, head, body)

    assert fast == plain
    assert slow == 0


@pytest.mark.parametrize("head, body", UNUSUAL)
async def test_an_unusual_request_is_the_frameworks(twice: Twice, head: str, body: bytes):
    plain, fast, slow = await _both(twice, head, body)

    assert fast == plain
    assert slow == 1


async def test_a_body_in_pieces_is_one_body(twice: Twice):
    text = json.dumps({"to": "@a", "text": "x" * 300_000}).encode()

    plain, fast, slow = await _both(twice, *_post(text, KEY, JSON))

    assert fast == plain
    assert fast[0].startswith(b"HTTP/1.1 201 ")
    assert slow == 0


async def test_a_body_over_the_limit_is_refused_as_ever(twice: Twice):
    text = json.dumps({"to": "@a", "text": "x" * MAX_BODY}).encode()

    plain, fast, _ = await _both(twice, *_post(text, KEY, JSON))

    assert fast[0] == plain[0]
    assert fast[0].startswith(b"HTTP/1.1 413 ")


async def test_a_fault_of_ours_is_answered_and_logged(
    twice: Twice, caplog: pytest.LogCaptureFixture
):
    status, _, body = await _raw(twice.front(hot=True), *_get("/v1/messages/broken", KEY))

    assert status.startswith(b"HTTP/1.1 500 ")
    assert b"a fault of ours" not in body
    assert "GET /v1/messages/broken failed" in caplog.text


async def test_the_stream_of_a_reader_that_goes_is_closed(twice: Twice):
    _, writer = await twice.front(hot=True).dial(UID)
    path = "/v1/messages/endless/stream"
    writer.write(f"GET {path} HTTP/1.1\r\nHost: postroom\r\n{KEY}\r\n\r\n".encode())
    async with asyncio.timeout(DEADLINE):
        await twice.waiting.wait()
        writer.close()
        await twice.closed.wait()


def test_every_hot_route_is_declared_like_any_other(twice: Twice):
    paths = twice._app.openapi()["paths"]

    assert set(paths) >= {"/v1/messages", "/v1/messages/{message}"}
