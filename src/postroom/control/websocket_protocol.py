"""What a WebSocket connection may take: uvicorn's protocol over wsproto, with bounds that uvicorn does not have.

Nothing but what the application sends waits in memory for a client that does not read, and it can be cut at any time,
with a reason that it still gets if it reads on.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, ClassVar, cast

import wsproto
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto import events

from postroom.control.http_protocol import ABANDONED, ABORT
from postroom.protocol.sockets import Code, cut_reason

CUT = "postroom.cut"
"""Scope key: a function of code and reason that closes the connection, whatever waits in it."""


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
