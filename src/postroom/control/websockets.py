"""WebSocket routes of the API. FastAPI's are not used: callers, errors and bounds are those of every other route.

    routes = SocketRoutes()

    @routes.socket("/workers/{ref}/sdk-events/stream")
    @needs(Scope.OPERATE)
    @fails(NotFound)
    async def stream(socket: Socket, ref: AgentRef, after_id: AfterId = 0) -> None:
        uid = await parts.uid_of(ref)  # an error before `accept` is the answer to the request
        await socket.accept()
        await socket.send_text(...)  # waits while the client does not read, for SLOW seconds at most

The function is cancelled when the client has gone. When it returns, the connection is closed with code 1000.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_type_hints
from urllib.parse import parse_qsl

from pydantic import TypeAdapter, ValidationError

from postroom.control.http_protocol import ABANDONED, PRINCIPAL
from postroom.control.org_router import ROUTE, Receive, Scope, Send, refuse
from postroom.control.principals import demand_of
from postroom.control.websocket_protocol import CUT
from postroom.errors import InvalidInput, NotFound, PostroomError, http_status
from postroom.observe import get_logger
from postroom.protocol.principal import Principal
from postroom.protocol.sockets import SUBPROTOCOL, Code, cut_reason

log = get_logger(__name__)

F = TypeVar("F", bound=Callable[..., Awaitable[None]])

SLOW = 30.0
"""Seconds that a client may leave what is sent to it unread; then it is closed, and may come back."""

TOO_SLOW = "you read too slowly: connect again from where you are"


class SocketClosed(Exception):
    """The client has closed the connection, or it broke."""


class Socket:
    """The server's end of a WebSocket, for the function of a route."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.accepted = False
        self.closed = False
        self._receive = receive
        self._send = send

    @property
    def caller(self) -> Principal:
        """Who called."""
        return self.scope[PRINCIPAL]

    async def accept(self) -> None:
        """Begin to talk. Until then an error of the route is the answer to the client's request."""
        await self._receive()  # its request (ASGI, websocket.connect)
        offered = SUBPROTOCOL in self.scope.get("subprotocols", ())
        self.accepted = True
        await self._send(
            {"type": "websocket.accept", "subprotocol": SUBPROTOCOL if offered else None}
        )

    async def send_text(self, text: str) -> None:
        """Send a text message; waits while the client does not read."""
        await self._sent({"type": "websocket.send", "text": text})

    async def send_bytes(self, data: bytes) -> None:
        """Send a binary message; waits while the client does not read."""
        await self._sent({"type": "websocket.send", "bytes": data})

    async def receive(self) -> str | bytes:
        """The client's next message.

        Raises:
            SocketClosed: there will be none.
        """
        message = await self._receive()
        if message["type"] != "websocket.receive":
            self.closed = True
            raise SocketClosed
        text = message.get("text")
        return message["bytes"] if text is None else text

    async def close(self, code: int = Code.DONE, reason: str = "") -> None:
        """Close it, once what was sent is on its way."""
        if self.accepted and not self.closed:
            await self._sent(
                {"type": "websocket.close", "code": code, "reason": cut_reason(reason)}
            )
            self.closed = True

    async def _sent(self, message: MutableMapping[str, Any]) -> None:
        try:
            async with asyncio.timeout(SLOW):
                await self._send(message)
        except TimeoutError:
            self.cut(Code.TRY_AGAIN, TOO_SLOW)
            raise SocketClosed from None

    def cut(self, code: int, reason: str) -> None:
        """Close it now, even if the client does not read."""
        self.closed = True
        self.scope[CUT](code, reason)


@dataclass(frozen=True, slots=True)
class SocketRoute:
    """A route whose function talks over a WebSocket.

    Attributes:
        path: with parameters in braces, after the prefix of the API.
        query: how to check each parameter of the query.
    """

    path: str
    call: Callable[..., Awaitable[None]]
    segments: tuple[str, ...]
    query: dict[str, TypeAdapter[Any]]

    @classmethod
    def of(cls, path: str, call: Callable[..., Awaitable[None]]) -> SocketRoute:
        """The route of a function: its parameters are the socket, those of the path, and those of the query."""
        demand_of(call)  # a route without one is an error
        segments = tuple(path.split("/"))
        named = {each[1:-1] for each in segments if each.startswith("{")}
        hints = get_type_hints(call, include_extras=True)
        names = [name for name in inspect.signature(call).parameters if hints[name] is not Socket]
        query = {name: TypeAdapter(hints[name]) for name in names if name not in named}
        return cls(path, call, segments, query)

    def values(self, path: str) -> dict[str, str] | None:
        """The parameters in `path`; None if it is of another route."""
        given = path.split("/")
        if len(given) != len(self.segments):
            return None
        values = {}
        for wanted, found in zip(self.segments, given, strict=True):
            if wanted.startswith("{") and found:
                values[wanted[1:-1]] = found
            elif wanted != found:
                return None
        return values

    def checked(self, query: bytes) -> dict[str, Any]:
        """The values of the query; raises InvalidInput."""
        values: dict[str, Any] = {}
        for name, text in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
            adapter = self.query.get(name)
            if adapter is None:
                continue  # as FastAPI does it
            try:
                values[name] = adapter.validate_python(text)
            except ValidationError as error:
                raise InvalidInput(f"{name}: {error.errors()[0]['msg']}") from error
        return values


@dataclass(frozen=True, slots=True)
class SocketRoutes:
    """WebSocket routes: of one module, or all of an API.

    Args:
        admit: the principal of a request for a function; refuses it with an error. None for routes of a module.
        stream: told of each admitted request; refuses it where its key has too many streams.
    """

    admit: Callable[[Scope, Callable[..., Any]], Awaitable[Principal | None]] | None = None
    stream: Callable[[Scope], None] = lambda _: None
    routes: list[SocketRoute] = field(default_factory=list)

    def socket(self, path: str) -> Callable[[F], F]:
        """Make a function the one of the route at `path`."""

        def add(call: F) -> F:
            self.routes.append(SocketRoute.of(path, call))
            return call

        return add

    def include(self, others: SocketRoutes, prefix: str = "/v1") -> None:
        """Add the routes of a module below `prefix`."""
        self.routes.extend(SocketRoute.of(prefix + each.path, each.call) for each in others.routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection (ASGI 3)."""
        socket = Socket(scope, receive, send)
        try:
            await self._serve(scope, socket)
            await socket.close()
        except SocketClosed:
            return
        except asyncio.CancelledError:
            if not scope.get(ABANDONED):
                raise
        except PostroomError as error:
            await _refuse(socket, error, receive, send)
        except Exception as error:
            log.error("WebSocket %s failed", scope["path"], exc_info=error)
            internal = PostroomError("an internal error; the control plane's log has it")
            await _refuse(socket, internal, receive, send)

    async def _serve(self, scope: Scope, socket: Socket) -> None:
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        for route in self.routes:
            if (values := route.values(path)) is not None:
                scope[ROUTE] = route.path
                break
        else:
            raise NotFound(
                f"there is no WebSocket {path}", remedy="docs/api.md lists what there is"
            )
        if self.admit is not None:
            await self.admit(scope, route.call)
            self.stream(scope)
        await route.call(socket, **values, **route.checked(scope["query_string"]))


async def _refuse(socket: Socket, error: PostroomError, receive: Receive, send: Send) -> None:
    """Answer the request with an error, or close an accepted connection with it."""
    if not socket.accepted:
        await refuse(socket.scope, receive, send, error)
    elif not socket.closed:
        status = http_status(error)
        code = Code.REFUSED if status < 500 else Code.FAILED
        socket.cut(code, f"{error.code}: {error.message}")
