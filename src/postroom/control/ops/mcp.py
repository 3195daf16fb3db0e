"""The post room as tools of the Model Context Protocol (docs/mcp.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from postroom.control.http_protocol import ABANDONED, GONE
from postroom.control.in_flight import ONLY_READS
from postroom.control.ops.table import ANY_KEY, Operations
from postroom.control.org_router import Receive, Scope, Send
from postroom.control.parts import Parts
from postroom.control.within import Within
from postroom.protocol.principal import Principal
from postroom_a2a import strict_json

if TYPE_CHECKING:
    from postroom.mcp.calls import Calls
    from postroom.mcp.server import McpServer

OWN_RECEIPTS = b"postroom-receipts"
"""Header: with the value `caller` its sender says itself what it has read."""


operations = Operations()


@operations.post("/mcp", ANY_KEY, hidden=True)
async def call(parts: Parts, body: dict[str, Any], request: Request, me: Principal) -> Response:
    """Answer a call of the Model Context Protocol.

    What a tool does is done by the operations that it names, each asked as its caller would.
    """
    server = await asyncio.to_thread(_server)  # its imports take half a second the first time
    session = parts.sessions.of(me.uid)
    if session is not None:
        await parts.sessions.note(session)
    scope = request.scope
    calls = server.calls(
        Within(parts.installation.router, scope),
        lambda: _ends_with_caller(scope),
        owner=session.owner if session is not None else "",
        confirms=(OWN_RECEIPTS, b"caller") not in scope["headers"],
    )
    return _Served(server, calls, strict_json.dumps(body))


@cache
def _server() -> McpServer:
    from postroom.mcp.server import McpServer

    return McpServer()


class _Served(Response):
    """The answer of the server; when it has left, what it holds is handed over."""

    def __init__(self, server: McpServer, calls: Calls, body: bytes) -> None:
        super().__init__()
        self._server = server
        self._calls = calls
        self._said = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from postroom.mcp.server import CALLS, HANDED

        scope[ONLY_READS] = True  # what its operations change is in the audit log as theirs
        scope[CALLS] = self._calls
        rest = [{"type": "http.request", "body": self._said, "more_body": False}]

        async def again() -> Any:
            return rest.pop() if rest else await receive()

        await self._server.serve(scope, again, send)
        if not scope.get(GONE):
            await self._calls.handed(scope.get(HANDED, ()))


@contextmanager
def _ends_with_caller(scope: Scope) -> Generator[None]:
    """While nothing changes, a request whose caller goes is ended."""
    scope[ABANDONED] = False
    try:
        yield
    finally:
        if not scope[ABANDONED]:
            del scope[ABANDONED]
