"""The routes that are called most, without the framework's share, which is larger than their own.

FastAPI declares every route, and with it the validation, the errors and OpenAPI. `HotRoutes` answers the plain cases of
those marked `hot`: it calls the same function with the same checked values. Whatever is unusual (an unknown media
type, a value that is not valid, a missing key) goes to FastAPI as if it had just come, and is refused there.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

from fastapi import APIRouter
from fastapi.params import Query
from fastapi.responses import Response, StreamingResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter, ValidationError

from postroom.control.bodies import read_json
from postroom.control.http_protocol import ABANDONED
from postroom.control.org_router import ROUTE, Receive, Scope, Send
from postroom.errors import DatabaseBusy, MessageTooLarge, PostroomError, Refused
from postroom.protocol.limits import MAX_BODY
from postroom.protocol.principal import Principal
from postroom_a2a import strict_json

F = TypeVar("F", bound=Callable[..., Awaitable[Any]])

_HOT = "postroom_hot"
_JSON = b"application/json"
_HEADERS = (b"content-type", _JSON)
_ANY: TypeAdapter[Any] = TypeAdapter(Any)


class _Unusual(Exception):
    """This request is for FastAPI."""


def hot(endpoint: F) -> F:
    """Mark the function of a route that is called often.

    Its parameters are those of the path, which are texts, at most one `Body`, a `Caller`, and single values of the
    query.
    """
    setattr(endpoint, _HOT, True)
    return endpoint


@dataclass(frozen=True, slots=True)
class HotRoute:
    """A route, its parameters resolved.

    Attributes:
        path: as it is declared.
        template: segments of its path; None where a parameter stands.
        places: names of the path's parameters, by the index of their segment.
        query: how to check each parameter of the query, by the name that it has there.
        names: names of the function's parameters, where the query has another.
        body: name and model of the body.
        caller: name of the parameter for the principal, "" without one.
        changes: whether a call may change anything, so that it goes on when its caller is gone.
    """

    call: Callable[..., Awaitable[Any]]
    status: int
    path: str
    template: tuple[str | None, ...]
    places: dict[int, str]
    query: dict[str, TypeAdapter[Any]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    body: tuple[str, type[BaseModel]] | None = None
    caller: str = ""
    changes: bool = False

    @classmethod
    def of(cls, route: APIRoute, prefix: str) -> HotRoute:
        """`route` below `prefix`."""
        segments = (prefix + route.path).split("/")
        places = {at: name[1:-1] for at, name in enumerate(segments) if name.startswith("{")}
        made = cls(
            call=route.endpoint,
            status=route.status_code or 200,
            path=prefix + route.path,
            template=tuple(None if at in places else name for at, name in enumerate(segments)),
            places=places,
            body=_body_of(route.endpoint),
            caller=_caller_of(route.endpoint),
            changes="GET" not in (route.methods or ()),
        )
        given = {*places.values(), made.caller, *([made.body[0]] if made.body else ())}
        for name, hint in _parameters(route.endpoint).items():
            if name not in given:
                shown = _shown(name, hint)
                made.names[shown], made.query[shown] = name, TypeAdapter(hint)
        return made

    def matches(self, segments: list[str]) -> bool:
        """Whether a path of as many segments is one of this route."""
        return all(
            bool(given) if wanted is None else given == wanted
            for wanted, given in zip(self.template, segments, strict=True)
        )

    def values(self, segments: list[str], query: bytes) -> dict[str, Any]:
        """The checked values of path and query."""
        values: dict[str, Any] = {name: segments[at] for at, name in self.places.items()}
        if not query:
            return values
        if b"%" in query or b"+" in query or not query.isascii():
            raise _Unusual
        for pair in query.decode().split("&"):
            shown, _, text = pair.partition("=")
            adapter = self.query.get(shown)
            if adapter is None or self.names[shown] in values:
                raise _Unusual
            values[self.names[shown]] = adapter.validate_python(text)
        return values


@dataclass(frozen=True, slots=True)
class HotRoutes:
    """The hot routes of one API.

    Args:
        admits: the principal of a request for a function; refuses it with an error.
        failure: the answer for an error of a route.
    """

    admits: Callable[[Scope, Callable[..., Any]], Awaitable[Principal | None]]
    failure: Callable[[Scope, Exception], Response]
    _routes: dict[tuple[str, int], list[HotRoute]] = field(default_factory=dict)

    def add(self, router: APIRouter, prefix: str) -> None:
        """Add those of `router` that are marked; the router is included in the API below `prefix`."""
        for route in router.routes:
            if isinstance(route, APIRoute) and getattr(route.endpoint, _HOT, False):
                made = HotRoute.of(route, prefix)
                for method in route.methods or ():
                    self._routes.setdefault((method, len(made.template)), []).append(made)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> Receive | None:
        """Answer a request if it is a plain one; otherwise returns from where the API receives it."""
        path: str = scope["path"].removeprefix(scope["root_path"])
        segments = path.split("/")
        for route in self._routes.get((scope["method"], len(segments)), ()):
            if route.matches(segments):
                scope[ROUTE] = route.path
                break
        else:
            return receive
        came: list[MutableMapping[str, Any]] = []
        try:
            size = self._size(scope, route)
            me = await self.admits(scope, route.call)
            values = route.values(segments, scope["query_string"])
            if route.caller:
                values[route.caller] = me
            if route.body is not None:
                name, model = route.body
                document = read_json(await _body(receive, came, size))
                values[name] = model.model_validate(document)
        # A limit: no more work is put into it.
        except (Refused, DatabaseBusy, MessageTooLarge) as error:
            await _send(self.failure(scope, error), send)
            return None
        except (_Unusual, ValidationError, ValueError, PostroomError):
            return _replayed(came, receive)
        if not route.changes:
            scope[ABANDONED] = False
            scope["headers"].clear()  # a caller may wait for an hour, and thousands may
        try:
            await self._answered(route, values, scope, send)
        except asyncio.CancelledError:
            if not scope.get(ABANDONED):
                raise
        return None

    def _size(self, scope: Scope, route: HotRoute) -> int:
        """The announced size of the body of a plain request."""
        size, plain = 0, route.body is None
        for name, value in scope["headers"]:
            if name == b"content-length":
                size = int(value)
            elif name == b"content-type":
                plain = plain or value == _JSON
            elif name in {b"transfer-encoding", b"expect"}:
                raise _Unusual
        if not plain or size > MAX_BODY or (size and route.body is None):
            raise _Unusual
        return size

    async def _answered(
        self, route: HotRoute, values: dict[str, Any], scope: Scope, send: Send
    ) -> None:
        try:
            result = await route.call(**values)
        except Exception as error:  # noqa: BLE001 (as FastAPI's: each error has its answer)
            result = self.failure(scope, error)
        if isinstance(result, StreamingResponse):
            await _stream(result, send)
            return
        if isinstance(result, Response):
            await _send(result, send)
            return
        body = _written(result)
        headers = [_HEADERS, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": route.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _parameters(endpoint: Callable[..., Any]) -> dict[str, Any]:
    hints = get_type_hints(endpoint, include_extras=True)
    return {name: hints[name] for name in inspect.signature(endpoint).parameters}


def _body_of(endpoint: Callable[..., Any]) -> tuple[str, type[BaseModel]] | None:
    for name, hint in _parameters(endpoint).items():
        if isinstance(hint, type) and issubclass(hint, BaseModel):
            return name, hint
    return None


def _caller_of(endpoint: Callable[..., Any]) -> str:
    for name, hint in _parameters(endpoint).items():
        if get_origin(hint) is Annotated and get_args(hint)[0] is Principal:
            return name
    return ""


def _shown(name: str, hint: Any) -> str:
    """The name of a parameter in the query."""
    marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Query)]
    return next((mark.alias for mark in marks if mark.alias), name)


def _written(value: Any) -> bytes:
    try:
        return strict_json.dumps(value)
    except (TypeError, ValueError):  # not a number: null, as pydantic writes it
        return _ANY.dump_json(value)


async def _send(response: Response, send: Send) -> None:
    start = {"type": "http.response.start", "status": response.status_code}
    await send(start | {"headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})


async def _stream(response: StreamingResponse, send: Send) -> None:
    start = {"type": "http.response.start", "status": response.status_code}
    await send(start | {"headers": response.raw_headers})
    async with aclosing(cast("AsyncGenerator[str]", response.body_iterator)) as pieces:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece.encode(), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _body(receive: Receive, came: list[MutableMapping[str, Any]], size: int) -> bytes:
    """The body of `size` bytes; notes in `came` what came."""
    while True:
        message = await receive()
        came.append(message)
        if message["type"] != "http.request":
            raise _Unusual
        if not message.get("more_body"):
            break
    body = came[0]["body"] if len(came) == 1 else b"".join(part["body"] for part in came)
    if len(body) != size:
        raise _Unusual
    return body


def _replayed(came: list[MutableMapping[str, Any]], receive: Receive) -> Receive:
    """Gives what came already, then what comes."""
    if not came:
        return receive
    left = iter(came)

    async def again() -> MutableMapping[str, Any]:
        message = next(left, None)
        return await receive() if message is None else message

    return again
