"""The router of one organisation's API: finds the operation of a request, checks caller and fields, answers.

One way for every operation (`ops.table`): its caller is admitted before anything of the request is read, then come
path, query and body, each bounded and checked. Any error is a problem document (RFC 9457).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, cast

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from postroom.control.acts import AwaitsOwner
from postroom.control.bodies import read_json
from postroom.control.guests import as_guest, hosts
from postroom.control.http_protocol import ABANDONED, PRINCIPAL
from postroom.control.ops.table import OF_API, REST, SOCKET, Operation
from postroom.control.org_router import ROUTE, STREAMED, Receive, Scope, Send, refuse, told
from postroom.control.principals import Gate
from postroom.control.websockets import Socket, serve_socket
from postroom.errors import (
    InvalidInput,
    MalformedRequest,
    MessageTooLarge,
    MethodNotAllowed,
    NotFound,
    PostroomError,
)
from postroom.protocol.principal import Principal
from postroom_a2a import strict_json

_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_JSON = (b"content-type", b"application/json")
_LOOK = "GET /v1/openapi.json lists what there is"
_AS_JSON = "send it with the header Content-Type: application/json"


class Router:
    """ASGI application of one organisation, WebSockets included.

    Args:
        gate: admits callers.
        given: what operations get by the names of their parameters (`ops.table.OF_API`); one that takes what is not
            here is not of this API.
        declared: every operation.
    """

    def __init__(self, gate: Gate, given: Mapping[str, Any], declared: Iterable[Operation]) -> None:
        self._gate = gate
        absent = OF_API - given.keys() - {"table"}
        self.table = [each for each in declared if not each.takes & absent]
        self._given = {**given, "table": self.table}
        self._by_form: dict[tuple[str, int, str], list[Operation]] = {}
        for each in sorted(self.table, key=lambda operation: len(operation.places)):
            self._by_form.setdefault(_form(each.method, each.segments), []).append(each)
        self._others = [each for each in self.table if each.segments[-1] == REST]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection (ASGI 3)."""
        if scope["type"] == "websocket":
            await serve_socket(scope, receive, send, self._talk)
            return
        try:
            await self._serve(scope, receive, send)
        except asyncio.CancelledError:
            if not scope.get(ABANDONED):
                raise

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            operation, values = await self._admitted(scope, scope["method"])
            values |= await _in_body(operation, scope, receive)
            if "request" in values:
                values["request"] = Request(scope, receive)
            elif not operation.changes:
                scope["headers"].clear()  # a caller may wait for an hour, and thousands may
            if not operation.changes:
                scope[ABANDONED] = False
            result = await self._called(operation, values, scope.get(PRINCIPAL))
        except AwaitsOwner as asked:
            await _answer(202, asked.shown, send)
            return
        except Exception as error:  # noqa: BLE001 (each error has its answer)
            more = self._allow(scope) if isinstance(error, MethodNotAllowed) else ()
            await refuse(scope, receive, send, told(scope, error), more)
            return
        if isinstance(result, StreamingResponse):
            await _stream(result, send)
        elif isinstance(result, Response):
            await result(scope, receive, send)
        else:
            await _answer(operation.status, result, send)

    async def _called(
        self, operation: Operation, values: dict[str, Any], me: Principal | None
    ) -> Any:
        """The answer of an operation; what is not here may be where the caller is a guest."""
        try:
            return await operation.call(**values)
        except NotFound:
            if not operation.crosses or me is None:
                raise
            home: Any = self._given["parts"]
            for parts, guest in await hosts(home, me):
                with suppress(NotFound):
                    answer = await operation.call(**values | {"parts": parts, "me": guest})
                    return as_guest(answer, guest, parts.owner.org)
            raise

    async def _talk(self, scope: Scope, socket: Socket) -> None:
        """Do what a WebSocket is for."""
        operation, values = await self._admitted(scope, SOCKET)
        await operation.call(**values | {"socket": socket})

    async def _admitted(self, scope: Scope, method: str) -> tuple[Operation, dict[str, Any]]:
        """The operation of a request, and what it is called with but for its body.

        Raises:
            NotFound, MethodNotAllowed: there is none.
            PostroomError: the caller may not, or a field is not valid.
        """
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        segments = path.split("/")
        operation = self._found(method, segments)
        if operation is None:
            raise self._unknown(method, path, segments)
        scope[ROUTE], scope[STREAMED] = operation.path, operation.content
        me = await self._gate.admit(scope, operation)
        values = operation.in_query(scope["query_string"])
        for at, name in operation.places.items():
            values[name] = segments[at]
        for name in operation.given:
            values[name] = me if name == "me" else self._given.get(name)
        if me is not None and me.stranger:
            for name in operation.naming:
                if ref := values.get(name):
                    await self._gate.sees(me, ref)
        return operation, values

    def _found(self, method: str, segments: list[str]) -> Operation | None:
        for operation in self._by_form.get(_form(method, segments), ()):
            if operation.matches(segments):
                return operation
        others = (each for each in self._others if each.method == method)
        return next((each for each in others if each.matches(segments)), None)

    def _unknown(self, method: str, path: str, segments: list[str]) -> PostroomError:
        """The error for a request that no operation is for."""
        if method == SOCKET:
            return NotFound(
                f"there is no WebSocket {path}", remedy="docs/api.md lists what there is"
            )
        if self._methods(segments):
            return MethodNotAllowed(f"there is no {method} {path}", remedy=_LOOK)
        return NotFound(f"there is no {method} {path}", remedy=_LOOK)

    def _methods(self, segments: list[str]) -> list[str]:
        """The methods of a path."""
        return sorted({each.method for each in self.table if each.matches(segments)} - {SOCKET})

    def _allow(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        allowed = self._methods(scope["path"].removeprefix(scope["root_path"]).split("/"))
        return [(b"allow", ", ".join(allowed).encode())]


def _form(method: str, segments: Sequence[str]) -> tuple[str, int, str]:
    """What operations are looked up by: no path has a field before its third segment, the noun behind `/v1`."""
    return method, len(segments), segments[2] if len(segments) > 2 else ""


async def _in_body(operation: Operation, scope: Scope, receive: Receive) -> dict[str, Any]:
    """The checked body of a request, by the name of its parameter.

    Raises:
        MessageTooLarge: it has too many bytes or values.
        InvalidInput: it is not JSON, or not as it has to be.
    """
    asked = operation.body
    if asked is None:
        return {}
    text = await _read(receive, operation.most)
    if not text and not asked.required:
        return {}
    if not _is_json(scope):
        raise InvalidInput("the body: it has to be JSON", remedy=_AS_JSON)
    if not text:
        raise InvalidInput("the body: Field required")
    return {asked.name: asked.checked(read_json(text))}


def _is_json(scope: Scope) -> bool:
    """Whether a request says that its body is JSON: `application/json`, or another type whose syntax that is."""
    given = [value for name, value in scope["headers"] if name == b"content-type"]
    kind = given[0].partition(b";")[0].strip().lower() if given else b""
    main, _, sub = kind.partition(b"/")
    return main == b"application" and (sub == b"json" or sub.endswith(b"+json"))


async def _read(receive: Receive, most: int) -> bytes:
    """A body of at most `most` bytes, whatever its head promised."""
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] != "http.request":
            raise MalformedRequest("the body ended before its end")
        pieces.append(message.get("body", b""))
        size, more = size + len(pieces[-1]), message.get("more_body", False)
        if size > most:
            raise MessageTooLarge(f"the request's body is over {most} bytes")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def _answer(status: int, result: Any, send: Send) -> None:
    body = b"" if status == 204 else _written(result)
    head = [] if status == 204 else [_JSON, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def _written(value: Any) -> bytes:
    try:
        return strict_json.dumps(value)
    except (TypeError, ValueError):  # not a number: null, as pydantic writes it
        return _ANY.dump_json(value)


async def _stream(response: StreamingResponse, send: Send) -> None:
    start = {"type": "http.response.start", "status": response.status_code}
    await send(start | {"headers": response.raw_headers})
    async with aclosing(cast("AsyncGenerator[str | bytes]", response.body_iterator)) as pieces:
        async for piece in pieces:
            body = piece.encode() if isinstance(piece, str) else piece
            await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
