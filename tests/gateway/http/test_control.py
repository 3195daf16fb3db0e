"""The control plane's API through a worker's door, served by the real listener of workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from postroom.control.http_listener import WorkerDialer
from postroom.control.org_router import WORKER, Receive, Scope, Send
from postroom.gateway.http.session import ControlProxy
from tests.gateway.http.rig import UID, Near, Way

pytestmark = pytest.mark.anyio


class App:
    """An application that takes the whole body and says how long it is."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        size, more = 0, True
        while more:
            message = await receive()
            size += len(message.get("body", b""))
            more = message.get("more_body", False)
        body = str(size).encode()
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": body})

    def header(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.scopes[-1]["headers"] if key == name]


@asynccontextmanager
async def entered(way: Way, app: Any) -> AsyncGenerator[Near]:
    proxy = ControlProxy(WorkerDialer(app).dial)
    async with way.open(proxy, "http") as enter:
        yield await enter()


@pytest.mark.requirement("audit-recorded-first")
async def test_each_request_of_a_connection_is_served_as_the_workers_and_is_in_the_log(way: Way):
    app = App()
    async with entered(way, app) as near:
        first = await near.ask("/v1/blobs?x=secret", "POST", b"12345", authorization="Bearer t")
        second = await near.ask("/v1/workers/me")
        await way.until(lambda: len(way.sink.records) == 4)

    assert (first.status, first.body, second.body) == (202, b"5", b"0")
    assert [scope[WORKER] for scope in app.scopes] == [UID, UID]
    assert way.said("protocol", "direction", "verb", "url", "status") == [
        ("http", "out", "POST", "http://postroom/v1/blobs", 0),
        ("http", "in", "POST", "http://postroom/v1/blobs", 202),
        ("http", "out", "GET", "http://postroom/v1/workers/me", 0),
        ("http", "in", "GET", "http://postroom/v1/workers/me", 202),
    ]
    assert "secret" not in way.sink.text


async def test_a_request_names_what_the_worker_is_at_as_its_cause(way: Way):
    way.cause.task_changed("t1", "working")
    async with entered(way, App()) as near:
        await near.ask("/v1/blobs", "POST", b"12345")
        await way.until(lambda: len(way.sink.records) == 2)

    assert way.said("cause_task", "cause_exact") == [("t1", True)] * 2


@pytest.mark.requirement("audit-recorded-first")
async def test_what_cannot_be_written_down_is_not_served(way: Way):
    app = App()
    way.sink.full = True
    async with entered(way, app) as near:
        reply = await near.ask("/v1/status")

    assert reply.status == 503
    assert app.scopes == []


async def test_a_request_is_written_anew(way: Way):
    app = App()
    async with entered(way, app) as near:
        await near.send(
            b"POST /v1/x HTTP/1.1\r\nHOST: evil\r\nX-Forwarded-For: 1.2.3.4\r\nauthorization:Bearer t\r\n"
            b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\nX-Trailer: 1\r\n\r\n"
        )
        await near.reader.readuntil(b"\r\n\r\n")

    assert app.header(b"host") == [b"postroom"]
    assert app.header(b"authorization") == [b"Bearer t"]
    assert app.header(b"content-length") == []
    assert app.header(b"x-forwarded-for") == []


async def test_nothing_but_the_control_plane_is_reached_this_way(way: Way):
    app = App()
    async with entered(way, app) as near:
        absolute = await near.ask("http://example.com/")
        await near.send(b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        tunnel = await asyncio.wait_for(near.reader.readuntil(b"\r\n\r\n"), 20)

    assert absolute.status == 422
    assert tunnel.startswith(b"HTTP/1.1 422")
    assert app.scopes == []
    assert {verdict for (verdict,) in way.said("verdict")} == {"denied"}


async def test_a_large_upload_passes_without_being_held(way: Way):
    size = 32 * 1024 * 1024
    async with entered(way, App()) as near:
        await near.send(
            f"PUT /v1/blobs HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()
        )
        for _ in range(size // 65536):
            await near.send(bytes(65536))
        answer = await asyncio.wait_for(near.reader.readuntil(str(size).encode()), 40)

    assert answer.startswith(b"HTTP/1.1 202")
