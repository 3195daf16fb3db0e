"""The ASGI application of an A2A server: cards and bindings below one address."""

from __future__ import annotations

from contextlib import suppress

from postroom_a2a.ecma_json import dumps
from postroom_a2a.errors import PostroomError
from postroom_a2a.http import cards
from postroom_a2a.http.cards import CardOf
from postroom_a2a.http.errors import headers_of, rest_status
from postroom_a2a.http.exchange import (
    ClientGone,
    ClientStalled,
    Exchange,
    Front,
    Receive,
    Scope,
    Send,
)
from postroom_a2a.http.jsonrpc import JsonRpc
from postroom_a2a.http.rest import Rest


class A2AApplication:
    """An ASGI 3 application that serves A2A.

    Args:
        card_of: gives the public card; None for a server without one.
    """

    def __init__(self, front: Front, card_of: CardOf | None = None) -> None:
        self._front = front
        self._card_of = card_of
        self._jsonrpc = JsonRpc(front)
        self._rest = Rest(front)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection; only HTTP has an answer."""
        if scope["type"] == "http":
            with suppress(ClientStalled):  # the server cuts a connection whose answer has no end
                await self.serve(Exchange(scope, receive, send))

    async def serve(self, exchange: Exchange) -> None:
        """Answer one request, whose `path` is below the agent's address.

        Raises:
            ClientStalled: whoever serves the connection is to cut it.
        """
        try:
            await self._serve(exchange)
        except ClientStalled:
            raise
        except ClientGone:
            return
        except PostroomError as error:
            status, document = rest_status(error)
            await exchange.answer(
                status, dumps(document), b"application/json", *headers_of(status, error)
            )

    async def _serve(self, exchange: Exchange) -> None:
        path, verb = exchange.path, exchange.method
        if path in ("", "/") and verb == "POST":
            await self._jsonrpc.serve(exchange)
        elif path in cards.PATHS and verb in ("GET", "HEAD") and self._card_of is not None:
            await cards.answer(exchange, await self._card_of(exchange))
        else:
            await self._rest.serve(exchange)
