"""The local HTTP API: how an agent, or a tool it calls, sends and confirms without speaking lines.

It listens on the sandbox's loopback and asks for no secret: whoever runs inside is the agent. Host and Origin
are checked all the same, so that no web page in a browser of the same machine can use it (DNS rebinding).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from postroom.errors import Forbidden, InvalidInput, NotFound
from postroom.sidecar.adapters.jsonl import make_find, make_post, make_reply, make_seen, make_send
from postroom.sidecar.httpd import Request
from postroom.sidecar.operations import Operations

Answer = tuple[int, Any]


class LocalApi:
    """Routes of the local API.

    Args:
        operations: what the agent can do.
        me: the answer to `whoami`.
        port: that it listens on, for the Host check.
    """

    def __init__(self, operations: Operations, me: Mapping[str, Any], port: int) -> None:
        self._operations = operations
        self._me = dict(me)
        self._hosts = frozenset({f"127.0.0.1:{port}", f"localhost:{port}"})
        self._routes: dict[tuple[str, str], Callable[[Request], Awaitable[Answer]]] = {
            ("POST", "/v1/send"): self._send,
            ("POST", "/v1/reply"): self._reply,
            ("POST", "/v1/post"): self._post,
            ("POST", "/v1/seen"): self._seen,
            ("GET", "/v1/inbox"): self._inbox,
            ("GET", "/v1/agents"): self._agents,
            ("GET", "/v1/whoami"): self._whoami,
        }

    async def handle(self, request: Request) -> Answer:
        """Answer one request.

        Raises:
            Forbidden: it comes from a web page, or under another host name.
            NotFound: there is no such route.
            PostroomError: what the operation says.
        """
        if request.headers.get("host") not in self._hosts:
            raise Forbidden("the Host header does not name this API")
        if "origin" in request.headers:
            raise Forbidden("web pages may not use this API")
        route = self._routes.get((request.method, request.path.partition("?")[0]))
        if route is None:
            raise NotFound(f"there is no {request.method} {request.path[:100]}")
        return await route(request)

    async def _send(self, request: Request) -> Answer:
        return _accepted(await self._operations.send(make_send(_body(request))))

    async def _reply(self, request: Request) -> Answer:
        return _accepted(await self._operations.reply(make_reply(_body(request))))

    async def _post(self, request: Request) -> Answer:
        return _accepted(await self._operations.post(make_post(_body(request))))

    async def _seen(self, request: Request) -> Answer:
        action = make_seen(_body(request))
        self._operations.seen(action)
        return 200, {"id": action.id, "state": "seen"}

    async def _inbox(self, _: Request) -> Answer:
        return 200, self._operations.held()

    async def _agents(self, request: Request) -> Answer:
        query = dict(parse_qsl(request.path.partition("?")[2]))
        return 200, {"agents": await self._operations.find(make_find(query))}

    async def _whoami(self, _: Request) -> Answer:
        return 200, self._me


def _accepted(sent: str) -> Answer:
    return 200, {"id": sent, "state": "accepted"}


def _body(request: Request) -> dict[str, Any]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise InvalidInput("the body has to be JSON", remedy="Content-Type: application/json")
    try:
        record = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the body is no JSON") from error
    if not isinstance(record, dict):
        raise InvalidInput("the body is no JSON object")
    return record
