"""The MCP server of an organisation: Streamable HTTP without sessions, for the present protocol and those before it.

The official SDK reads and writes the protocol. It is imported with this module, which takes half a second: so nobody
imports this before the first call of `/mcp`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast
from urllib.parse import parse_qs

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from postroom import __version__
from postroom.errors import PostroomError
from postroom.mcp.calls import Calls, Handed, Room, Transport, Unknown, Waits
from postroom.mcp.said import fault
from postroom.mcp.tools import INSTRUCTIONS, offered
from postroom.observe import get_logger
from postroom.protocol.handover import MESSAGES
from postroom_a2a.text import one_line, printable

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

CALLS = "postroom.calls"
"""Scope key: the tools for the caller of a request."""

HANDED = "postroom.handed"
"""Scope key: ids of messages that are in the result of the request from beginning to end."""

WHICH = "tools"
"""Field of the query that says which tools the caller wants."""

log = get_logger(__name__)

# Its lines about each request and each client's mistake would fill our log.
logging.getLogger("mcp").setLevel(logging.CRITICAL)


class McpServer:
    """Serves requests whose caller is admitted, each for itself."""

    def __init__(self) -> None:
        self._server = Server(
            "postroom",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=_list,
            on_call_tool=_call,
            get_tool_input_schema=lambda _name: None,  # none of its arguments stands in a header
        )
        self._server.middleware.clear()  # spans are those of the request

    def calls(
        self, transport: Transport, waits: Waits, handed: Handed | None, *, owner: str
    ) -> Calls:
        """The tools for the caller in whose name `transport` asks; the arguments are those of `Calls`."""
        return Calls(Room(transport), waits, handed, owner=owner)

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request (ASGI 3); `scope` has `CALLS`."""
        manager = StreamableHTTPSessionManager(self._server, json_response=True, stateless=True)
        async with manager.run():
            await manager.handle_request(scope, receive, send)


async def _list(
    context: ServerRequestContext[Any], _params: PaginatedRequestParams | None
) -> ListToolsResult:
    query = parse_qs(_scope(context)["query_string"].decode("latin-1"))
    wanted = offered(query.get(WHICH, [""])[-1])
    tools = [Tool.model_validate(each.listed, by_name=False) for each in wanted]
    return ListToolsResult(tools=tools)


async def _call(
    context: ServerRequestContext[Any], params: CallToolRequestParams
) -> CallToolResult:
    scope = _scope(context)
    calls: Calls = scope[CALLS]
    try:
        said = await calls.call(params.name, params.arguments or {})
    except Unknown as error:
        raise MCPError(INVALID_PARAMS, error.message) from error
    except PostroomError as error:
        return _result(fault(error), failed=True)
    except Exception:
        log.exception("the tool %s failed", one_line(params.name, 60))
        return _result("an internal error; the control plane's log has it", failed=True)
    scope[HANDED] = said.handed
    meta = {MESSAGES: list(said.handed)} if said.handed else None
    return _result(said.text, meta=meta)


def _result(
    text: str, *, failed: bool = False, meta: dict[str, Any] | None = None
) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=printable(text))], is_error=failed, _meta=meta
    )


def _scope(context: ServerRequestContext[Any]) -> Scope:
    return cast("Any", context.request).scope
