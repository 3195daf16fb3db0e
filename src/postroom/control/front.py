"""The first ASGI layer: answers from the first moment, checks Host and Origin, hands on to the API.

The API's imports take longer than the bus needs to be up, so it is set later (`open`). Every request passes the
Host check: a web page that rebinds its name to 127.0.0.1 still sends its own name (DNS rebinding).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from postroom.errors import (
    EnvironmentFault,
    Forbidden,
    MessageTooLarge,
    PostroomError,
    http_status,
    problem,
)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MAX_BODY = 8 * 1024 * 1024
"""Bytes of a request's body: the files of a template (4 MiB) in base64 fit."""

STREAMED = "/v1/blobs"
"""Paths whose bodies are not held in memory; whoever takes them bounds them."""

WORKER = "postroom.worker"
"""Scope key: uid of the worker whose door a request came through; absent for all others."""


class Front:
    """ASGI application that is there before the API is.

    Args:
        hosts: allowed values of the Host header, port included.
    """

    def __init__(self, hosts: frozenset[str]) -> None:
        self._hosts = hosts
        self._api: App | None = None

    def open(self, api: App) -> None:
        """From now on requests reach `api`, and `/readyz` says so."""
        self._api = api

    def shut(self) -> None:
        """From now on only `/livez` answers."""
        self._api = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection (ASGI 3)."""
        if scope["type"] == "lifespan":
            return
        try:
            self._check(scope)
        except PostroomError as error:
            await _answer(scope, receive, send, http_status(error), problem(error))
            return
        await self._dispatch(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/livez":
                await _answer(scope, receive, send, 200, "ok")
            case "/readyz":
                await _answer(
                    scope,
                    receive,
                    send,
                    200 if self._api else 503,
                    {"ready": self._api is not None},
                )
            case _ if self._api is None:
                starting = EnvironmentFault(
                    "the post room is starting", remedy="try again in a second"
                )
                await _answer(scope, receive, send, 503, problem(starting))
            case str(path) if path.startswith(STREAMED):
                await self._api(scope, receive, send)
            case _:
                await _bounded(self._api, scope, receive, send)

    def _check(self, scope: Scope) -> None:
        if WORKER in scope:
            return  # came through a worker's door, which no browser can reach
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if headers.get(b"host", "").lower() not in self._hosts:
            raise Forbidden("this Host is not served here")
        origin = headers.get(b"origin")
        if origin is not None and _authority(origin) not in self._hosts:
            raise Forbidden("this Origin may not call")


async def _bounded(api: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Call `api`; a body that goes past `MAX_BODY`, whatever its headers promised, is refused instead.

    The API's framework would answer 400 for an error that comes while it reads, so the answer is ours.
    """
    taken = 0
    refused = MessageTooLarge(f"the request's body is over {MAX_BODY} bytes")

    async def count() -> MutableMapping[str, Any]:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MAX_BODY:
            raise refused
        return message

    async def answer(message: MutableMapping[str, Any]) -> None:
        if taken <= MAX_BODY:
            await send(message)
        elif message["type"] == "http.response.start":
            await _answer(scope, receive, send, http_status(refused), problem(refused))

    await api(scope, count, answer)


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


async def _answer(scope: Scope, receive: Receive, send: Send, status: int, body: object) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008 if status < 500 else 1013})
        return
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    kind = "text/plain" if isinstance(body, str) else "application/json"
    if isinstance(body, dict) and "type" in body:
        kind = "application/problem+json"
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(content)).encode())]
    if status == 503:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
