"""WebSockets of the API: callers, errors and bounds are those of every other operation.

    @operations.socket("/workers/{ref}/sdk-events/stream", Scope.OPERATE, fails=(NotFound,))
    async def stream(parts: Parts, socket: Socket, ref: AgentRef, after_id: AfterId = 0) -> None:
        uid = await parts.uid_of(ref)  # an error before `accept` is the answer to the request
        await socket.accept()
        await socket.send_text(...)  # waits while the client does not read, for SLOW seconds at most

The function is cancelled when the client has gone. When it returns, the connection is closed with code 1000.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from postroom.control.http_protocol import ABANDONED, PRINCIPAL
from postroom.control.org_router import Receive, Scope, Send, refuse
from postroom.control.websocket_protocol import CUT
from postroom.errors import PostroomError, http_status
from postroom.observe import get_logger
from postroom.protocol.principal import Principal
from postroom.protocol.sockets import SUBPROTOCOL, Code, cut_reason

log = get_logger(__name__)

Talk = Callable[[Scope, "Socket"], Awaitable[None]]

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


async def serve_socket(scope: Scope, receive: Receive, send: Send, talk: Talk) -> None:
    """Handle one connection (ASGI 3) by `talk`; it is closed when that returns or fails."""
    socket = Socket(scope, receive, send)
    try:
        await talk(scope, socket)
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


async def _refuse(socket: Socket, error: PostroomError, receive: Receive, send: Send) -> None:
    """Answer the request with an error, or close an accepted connection with it."""
    if not socket.accepted:
        await refuse(socket.scope, receive, send, error)
    elif not socket.closed:
        status = http_status(error)
        code = Code.REFUSED if status < 500 else Code.FAILED
        socket.cut(code, f"{error.code}: {error.message}")
