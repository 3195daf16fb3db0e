"""The HTTP server and clients that do not behave."""

from __future__ import annotations

import asyncio
import socket

import pytest

from postroom.errors import Forbidden
from postroom.http import server as http_server
from postroom.http.hosts import check_host
from postroom.http.server import Answer, HttpRequest, HttpServer

pytestmark = pytest.mark.anyio


async def test_a_client_that_does_not_read_its_answer_is_cut(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_server, "READ_TIMEOUT", 0.2)

    asked = asyncio.Event()

    async def answer(_: HttpRequest) -> Answer:
        asked.set()
        return 200, "x" * 32 * 1024 * 1024

    async with HttpServer().answer_with(answer) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(10):
                await asked.wait()
                _, holding = await asyncio.wait(set(server._connections), timeout=5)
            assert not holding


def test_a_request_under_another_name_or_from_another_page_is_refused():
    hosts, own = {"127.0.0.1:80"}, {"http://127.0.0.1:80"}
    check_host("127.0.0.1:80", None, hosts)
    check_host("127.0.0.1:80", "http://127.0.0.1:80", hosts, pages=own)
    for host, origin, pages in (
        ("", None, ()),
        ("evil.example", None, ()),
        ("127.0.0.1:80", "http://127.0.0.1:80", ()),
        ("127.0.0.1:80", "http://evil.example", own),
        ("127.0.0.1:80", "null", own),
        ("127.0.0.1:80", "http://[", own),
        ("127.0.0.1:80", "https://127.0.0.1:80", own),
    ):
        with pytest.raises(Forbidden):
            check_host(host, origin, hosts, pages)
