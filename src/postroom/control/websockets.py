"""WebSockets of the API: callers, errors and bounds are those of every other operation.

    @operations.socket("/v1/workers/{ref}/sdk-events/stream", Scope.OPERATE, fails=(NotFound,))
    async def stream(parts: Parts, socket: Socket, ref: AgentRef, after_id: AfterId = 0) -> None:
        uid = await parts.uid_of(ref)  # an error before `accept` is the answer to the request
        await socket.accept()
        await socket.send_text(...)  # waits while the client does not read, for SLOW seconds at most

The function is cancelled when the client has gone. When it returns, the connection is closed with code 1000.

Nothing but what it sends waits in memory for a client that does not read, and `BoundedWebSocket`, uvicorn's protocol
over wsproto with bounds that uvicorn does not have, can cut that client at any time, with a reason that it still gets
if it reads on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, ClassVar, cast

import wsproto
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto import events

from postroom.control.http_protocol import ABANDONED, ABORT
from postroom.control.org_router import Receive, Scope, Send, refuse, told
from postroom.errors import PostroomError, http_status
from postroom.protocol.sockets import SUBPROTOCOL, Code, cut_reason

Talk = Callable[[Scope, "Socket"], Awaitable[None]]

SLOW = 30.0
"""Seconds that a client may leave what is sent to it unread; then it is closed, and may come back."""

CUT = "postroom.cut"
"""Scope key: a function of code and reason that closes the connection, whatever waits in it."""

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
    except Exception as error:  # noqa: BLE001 (each error has its answer)
        await _refuse(socket, told(scope, error), receive, send)


async def _refuse(socket: Socket, error: PostroomError, receive: Receive, send: Send) -> None:
    """Answer the request with an error, or close an accepted connection with it."""
    if not socket.accepted:
        await refuse(socket.scope, receive, send, error)
    elif not socket.closed:
        status = http_status(error)
        code = Code.REFUSED if status < 500 else Code.FAILED
        socket.cut(code, f"{error.code}: {error.message}")


class BoundedWebSocket(WSProtocol):
    """A WebSocket that can be cut, and that is cut if it is not accepted in time."""

    accept_timeout: ClassVar[float] = 15.0
    """Seconds that the application has to accept or refuse."""

    grace: ClassVar[float] = 5.0
    """Seconds that a client which is cut has to read what waits for it, the reason last."""

    _running: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None

    def handle_connect(self, event: events.Request) -> None:
        """Start the application."""
        super().handle_connect(event)
        scope = cast("MutableMapping[str, Any]", self.scope)
        scope[ABORT] = lambda: self.cut(Code.REFUSED, "the API key is not valid any more")
        scope[CUT] = self.cut
        scope[ABANDONED] = False
        self._timer = self.loop.call_later(self.accept_timeout, self._not_accepted)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the application's work for this client."""
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()
        if self._running is not None and not self._running.done():
            cast("MutableMapping[str, Any]", self.scope)[ABANDONED] = True
            self._running.cancel()

    def handle_ping(self, event: events.Ping) -> None:
        """Answer a ping, unless the client does not read: pongs must not fill the memory."""
        if self.writable.is_set():
            super().handle_ping(event)

    def cut(self, code: int, reason: str) -> None:
        """Close the connection now; the client gets the reason if it reads within the grace."""
        if self.transport.is_closing():
            return
        if self.handshake_complete and not self.close_sent and not self.response_started:
            self.close_sent = True
            self.stop_keepalive()
            closing = wsproto.events.CloseConnection(code=code, reason=cut_reason(reason))
            self.transport.write(self.conn.send(closing))
        self.transport.close()
        self.loop.call_later(self.grace, self.transport.abort)

    def _not_accepted(self) -> None:
        if not self.handshake_complete:
            self.transport.abort()

    async def run_asgi(self) -> None:
        """Run the application, which ends with the connection."""
        self._running = asyncio.current_task()
        await super().run_asgi()
