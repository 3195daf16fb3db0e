"""What the A2A client of the library calls: one exchange over HTTP/1.1, with the guard of what leaves this machine."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from urllib.parse import urlsplit, urlunsplit

from postroom.errors import (
    BusDisconnected,
    InvalidInput,
    NoResponders,
    PeerError,
)
from postroom.http.client import HttpAnswer, HttpClient, Streams
from postroom.http.outbound import OutboundPolicy, client_context, connect
from postroom.protocol.origins import PORTS
from postroom_a2a.http.client_port import HttpExchange, HttpReply, HttpRequest

CONNECT = 10.0
"""Seconds for a name, the connection and TLS together."""


class Reply:
    """An answer; a `postroom_a2a.http.client_port.HttpReply`."""

    def __init__(self, answer: HttpAnswer) -> None:
        self._answer = answer
        self.status = answer.status
        self.headers = dict(answer.headers)

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body as it comes."""
        try:
            async for piece in self._answer.pieces():
                yield piece
        except BusDisconnected as error:
            raise PeerError(error.message) from error


def outbound_exchange(
    policy: OutboundPolicy | None, tls: ssl.SSLContext | None = None
) -> HttpExchange:
    """An exchange with any host, a connection for each.

    Args:
        policy: of the post room; None for a program that a person runs for themselves, which may go where they may.
        tls: None for the system's authorities.
    """

    @asynccontextmanager
    async def exchange(request: HttpRequest) -> AsyncGenerator[HttpReply]:
        parts = urlsplit(request.url)
        host, port = parts.hostname, parts.port or PORTS.get(parts.scheme, 0)
        if not host or not port:
            raise InvalidInput("only http and https are called")
        context = (tls or _authorities()) if parts.scheme == "https" else None

        async def dial() -> Streams:
            try:
                if policy is not None:
                    return await connect(host, port, policy=policy, tls=context, timeout=CONNECT)
                async with asyncio.timeout(CONNECT):
                    return await asyncio.open_connection(host, port, ssl=context)
            except UnicodeError as error:  # the resolver's: a label of a name is empty, or too long
                raise InvalidInput(f"{host!r} is not the name of a host") from error
            except PeerError as error:
                raise NoResponders(error.message) from error
            except OSError as error:
                raise NoResponders(f"{parts.netloc} cannot be reached: {_reason(error)}") from error

        sent = {"host": parts.netloc, "user-agent": "postroom"}
        client = HttpClient(parts.netloc, dial, sent, step=request.silence, answer=request.silence)
        target = urlunsplit(("", "", parts.path or "/", parts.query, ""))
        try:
            answer = await client.ask(
                request.method, target, headers=request.headers.items(), body=request.body
            )
        except BusDisconnected as error:
            raise PeerError(error.message) from error
        async with answer:
            yield Reply(answer)

    return exchange


@cache
def _authorities() -> ssl.SSLContext:
    return client_context()


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return getattr(error, "verify_message", "") or error.reason or "the TLS handshake failed"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)  # asyncio's own text repeats the address
    return error.strerror or str(error) or "no answer in time"
