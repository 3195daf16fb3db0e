"""The post room as tools of the Model Context Protocol (docs/mcp.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, MutableMapping
from contextlib import AsyncExitStack, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from starlette.requests import Request
from starlette.responses import Response

from postroom.control.http_protocol import ABANDONED, GONE
from postroom.control.in_flight import ONLY_READS
from postroom.control.ops.table import ANY_KEY, Operations
from postroom.control.org_router import Receive, Scope, Send
from postroom.control.parts import Parts
from postroom.control.within import Within
from postroom.errors import PostroomError
from postroom.mcp.tools import HOW
from postroom.observe import get_logger
from postroom.protocol.handover import CALLER, OWN_RECEIPTS
from postroom.protocol.principal import Principal
from postroom_a2a import strict_json

if TYPE_CHECKING:
    from postroom.mcp.calls import Calls
    from postroom.mcp.server import McpServer

_BY_CALLER = (OWN_RECEIPTS.lower().encode(), CALLER.encode())


log = get_logger(__name__)

_turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

operations = Operations()


@operations.post("/mcp", ANY_KEY, hidden=True, strangers=True)
async def call(parts: Parts, body: dict[str, Any], request: Request, me: Principal) -> Response:
    """Answer a call of the Model Context Protocol.

    What a tool does is done by the operations that it names, each asked as its caller would.
    """
    if not _server.cache_info().currsize:
        await asyncio.to_thread(_server)  # its imports take half a second
    session = parts.sessions.of(me.uid)
    scope = request.scope

    async def handed() -> list[str]:
        return await parts.inboxes.handed(me.uid, HOW)

    server = _server()
    calls = server.calls(
        Within(parts.installation.router, scope),
        lambda: _ends_with_caller(scope),
        None if _BY_CALLER in scope["headers"] else handed,
        owner=session.owner if session is not None else "",
    )
    turn = _turns.setdefault(me.uid, asyncio.Lock())
    async with turn:  # what the caller was given before is delivered
        return _Served(server, calls, strict_json.dumps(body), turn)


@cache
def _server() -> McpServer:
    from postroom.mcp.server import McpServer

    return McpServer()


class _Served(Response):
    """The answer of the server; when it has left, what it holds is handed over, before the reader's next call begins.

    Args:
        turn: of those of this reader, who holds it hands over.
    """

    def __init__(self, server: McpServer, calls: Calls, body: bytes, turn: asyncio.Lock) -> None:
        super().__init__()
        self._server = server
        self._calls = calls
        self._said = body
        self._turn = turn

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from postroom.mcp.server import CALLS, HANDED

        scope[ONLY_READS] = True  # what its operations change is in the audit log as theirs
        scope[CALLS] = self._calls
        rest = [{"type": "http.request", "body": self._said, "more_body": False}]

        async def again() -> Any:
            return rest.pop() if rest else await receive()

        async with AsyncExitStack() as stack:

            async def note(message: MutableMapping[str, Any]) -> None:
                if message["type"] == "http.response.start" and scope.get(HANDED):
                    await stack.enter_async_context(self._turn)
                await send(message)

            await self._server.serve(scope, again, note)
            if not scope.get(GONE):
                try:
                    await self._calls.handed(scope.get(HANDED, ()))
                except PostroomError as error:
                    log.warning("mail in a result of a tool stays as it was: %s", error)


@contextmanager
def _ends_with_caller(scope: Scope) -> Generator[None]:
    """While nothing changes, a request whose caller goes is ended."""
    scope[ABANDONED] = False
    try:
        yield
    finally:
        if not scope[ABANDONED]:
            del scope[ABANDONED]
