"""A real listener before an ASGI application, and raw HTTP, since an HTTP client would correct what a test sends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from postroom.control.http_listener import HttpListener, bind
from postroom.control.org_router import App, OrgRouter, Receive, Scope, Send

DEADLINE = 10.0


@dataclass(frozen=True)
class Answer:
    """Status, headers in small letters, and body of a response."""

    status: int
    headers: dict[str, str]
    body: bytes


class Echo:
    """An API that answers 200 and keeps the scopes it was called with."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        headers = [(b"content-length", b"3")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"api"})


async def exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, *headers: str
) -> Answer:
    """One GET on an open connection, which is closed afterwards."""
    lines = [f"GET {path} HTTP/1.1", *headers, "Connection: close"]
    async with asyncio.timeout(DEADLINE):
        writer.write("\r\n".join([*lines, "", ""]).encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    status, *fields = head.decode().split("\r\n")
    pairs = (field.split(": ", 1) for field in fields)
    return Answer(int(status.split()[1]), {name.lower(): value for name, value in pairs}, body)


class Site:
    """A front on a free port of the loopback address."""

    def __init__(self) -> None:
        self.socket = bind("127.0.0.1", 0, usual=0)
        self.port: int = self.socket.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        self.router = OrgRouter(
            frozenset({self.host, f"localhost:{self.port}"}), frozenset({f"http://{self.host}"})
        )
        self.api = Echo()
        self.listener = HttpListener(self.router, self.socket)

    async def get(self, path: str, *headers: str) -> Answer:
        """GET with the right Host unless `headers` has one."""
        has_host = any(header.lower().startswith("host:") for header in headers)
        given = headers if has_host else (f"Host: {self.host}", *headers)
        async with asyncio.timeout(DEADLINE):
            pair = await asyncio.open_connection("127.0.0.1", self.port)
        return await exchange(*pair, path, *given)


@contextlib.asynccontextmanager
async def serving(app: App | None = None) -> AsyncGenerator[Site]:
    """A site that serves; `app` is what its front hands on to, none for a post room that is starting."""
    site = Site()
    if app is not None:
        site.router.open(app)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(site.listener.serve())
        site.socket.listen()
        try:
            yield site
        finally:
            site.listener.stop()
