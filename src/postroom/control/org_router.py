"""The first ASGI layer: it answers from the first moment, checks Host and Origin, and hands requests to the APIs.

The imports of an API take longer than the start of the bus, so `open` sets it later. Every request passes the check of
its Host (`http.hosts`).
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

from postroom.errors import (
    PROBLEM_TYPE,
    EnvironmentFault,
    Forbidden,
    MethodNotAllowed,
    PostroomError,
    StateUnwritable,
    Unauthorized,
    http_status,
    problem,
    retry_after,
)
from postroom.http.hosts import check_host
from postroom.observe import get_logger, tracing
from postroom.observe.metrics import Metrics
from postroom.protocol import traces
from postroom.protocol.answers import Ready
from postroom.protocol.proxies import Proxies
from postroom.settings import DEFAULT_ORG
from postroom_a2a import strict_json

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Away = Callable[[], Awaitable[Sequence[str]]]


class GuardPort(Protocol):
    """Stands before the API of one organisation (`control.in_flight`)."""

    async def serve(
        self, scope: Scope, receive: Receive, send: Send, serve: App, refused: App
    ) -> None:
        """Serve one request by `serve`, or let `refused` answer it."""


class CallDoor(Protocol):
    """Performs A2A calls that do not come over HTTP (`control.a2a.door`)."""

    async def greet(self, scope: Scope) -> None:
        """Refuse a call whose key nobody here has, before anything of it is read."""

    async def perform(self, scope: Scope, ref: str, method: str, perform: Any) -> None:
        """Let a call for the agent `ref` be performed, if its caller may."""


log = get_logger(__name__)

ORGS = "/orgs/"
"""Prefix of an organisation's name; the rest of the path is for the API of that organisation."""

WORKER = "postroom.worker"
"""Scope key: uid of the worker through whose door a request came; absent for all others."""

OWNER = "postroom.owner"
"""Scope key: the request came over the owner's socket."""


SWITCHING = 101
"""Status of an accepted WebSocket (HTTP, 101 Switching Protocols)."""

OTHER = "other"
"""In metrics, a request for no route."""

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})

LOOKS = ("GET", "HEAD")
"""Methods of what answers without an API."""

CHANGES = frozenset({"POST", "PUT", "DELETE", "PATCH"})
"""Methods that may change something."""

ROUTE = "postroom.route"
"""Scope key: the route that a request is for, with names in the place of what it names; metrics count by it."""

STREAMED = "postroom.streamed"
"""Scope key: whether the body of a request is content, which passes without being held in memory."""


@dataclass(frozen=True, slots=True)
class _Open:
    """An organisation that is open; see `OrgRouter.open`."""

    api: App
    guard: GuardPort | None
    calls: CallDoor | None
    away: Away | None


class OrgRouter:
    """ASGI application in front of the APIs.

    Attributes:
        metrics: those of the post room.

    Args:
        hosts: allowed values of the Host header, port included.
        pages: origins whose web pages may ask.
        proxies: whose word on the client's address is taken.
    """

    def __init__(
        self,
        hosts: frozenset[str],
        pages: frozenset[str] = frozenset(),
        proxies: Proxies | None = None,
    ) -> None:
        self._hosts = hosts
        self._pages = pages
        self._proxies = proxies or Proxies()
        self._orgs: dict[str, _Open] = {}
        self._doors: dict[str, str] = {}
        self.metrics = Metrics()
        self._requests = self.metrics.counter(
            "postroom_http_requests_total",
            "Requests by route and status; 0 where the caller went before an answer.",
            "method",
            "route",
            "status",
        )
        self._seconds = self.metrics.summary(
            "postroom_http_request_seconds",
            "Seconds from a request to the head of its answer.",
            "route",
        )

    def open(
        self,
        api: App,
        org: str = DEFAULT_ORG,
        guard: GuardPort | None = None,
        calls: CallDoor | None = None,
        away: Away | None = None,
    ) -> None:
        """Hand requests for `org` to `api`; with the default one `/readyz` reports ready.

        Args:
            guard: stands before it.
            calls: performs calls that do not come over HTTP.
            away: says what is away of that which requests need.
        """
        self._orgs[org] = _Open(api, guard, calls, away)

    def close(self, org: str) -> None:
        """Stop handing requests to `org`."""
        self._orgs.pop(org, None)

    def shut(self) -> None:
        """Answer only `/livez` from now on."""
        self._orgs.clear()

    def performs(self, org: str) -> bool:
        """Whether calls that do not come over HTTP find `org`."""
        return org in self._orgs and self._orgs[org].calls is not None

    def calls(self, org: str) -> tuple[CallDoor, GuardPort]:
        """What performs calls for `org`, and what stands before it.

        Raises:
            EnvironmentFault: it is not open.
        """
        opened = self._orgs.get(org)
        if opened is None or opened.calls is None or opened.guard is None:
            raise _starting()
        return opened.calls, opened.guard

    def admit(self, worker: str, org: str) -> None:
        """Hand requests through the door of `worker` to the API of `org` and to no other."""
        self._doors[worker] = org

    def dismiss(self, worker: str) -> None:
        """Refuse requests through the door of `worker`."""
        self._doors.pop(worker, None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection (ASGI 3)."""
        if scope["type"] == "lifespan":
            return
        begun, status = perf_counter(), 0

        async def note(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if not status:
                status = message.get("status", SWITCHING)
                self._seconds.note(scope.get(ROUTE, OTHER), value=perf_counter() - begun)
            await send(message)

        seen = tracing.follow(_trace_of(scope))
        made = tracing.start("HTTP", tracing.SERVER) if _has_span(scope) else None
        if made is not None:
            tracing.follow(made.trace)
        try:
            await self._answer(scope, receive, note)
        finally:
            tracing.unfollow(seen)
            if made is not None:
                _end_span(made, scope, status)
            method = scope.get("method", "GET")
            counted = method if method in METHODS else OTHER
            self._requests.add(counted, scope.get(ROUTE, OTHER), str(status))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
        except PostroomError as error:
            await refuse(scope, receive, send, error)
            return
        await self._dispatch(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/livez" | "/readyz" as path if scope.get("method", "GET") not in LOOKS:
                scope[ROUTE] = path
                error = MethodNotAllowed(f"there is no {scope['method']} {path}")
                allow = (b"allow", ", ".join(LOOKS).encode())
                await answer(scope, receive, send, 405, problem(error), [allow])
            case "/livez":
                scope[ROUTE] = "/livez"
                await answer(scope, receive, send, 200, "ok")
            case "/readyz":
                scope[ROUTE] = "/readyz"
                said = await self._ready()
                await answer(scope, receive, send, 200 if said["ready"] else 503, said)
            case _:
                try:
                    org = self._org_of(scope)
                    opened = self._opened(org)
                except PostroomError as error:
                    await refuse(scope, receive, send, error)
                    return
                if org and WORKER not in scope:
                    # The prefix before the API's own paths (ASGI 3, root_path).
                    scope["root_path"] = ORGS + org
                if opened.guard is None:
                    await opened.api(scope, receive, send)
                else:
                    await opened.guard.serve(scope, receive, send, opened.api, _ended)

    async def _ready(self) -> Ready:
        default = self._orgs.get(DEFAULT_ORG)
        if default is None:
            return {"ready": False}
        gone = await default.away() if default.away is not None else ()
        return {"ready": False, "away": gone} if gone else {"ready": True}

    def _org_of(self, scope: Scope) -> str:
        """The organisation that a request is for, "" for the default one's plain paths.

        Raises:
            Forbidden: a worker names an organisation (its door leads to its own), or its door is closed.
        """
        named = scope["path"].startswith(ORGS)
        if WORKER in scope:
            org = self._doors.get(scope[WORKER], "")
            if named or not org:
                raise Forbidden("workers may not call this")
            return org
        org = scope["path"].removeprefix(ORGS).partition("/")[0] if named else ""
        # For one that is not open, the default one's API tells the operator why (`routes.orgs`).
        return org if org in self._orgs else ""

    def _opened(self, org: str) -> _Open:
        """Raises EnvironmentFault where it is not open."""
        if opened := self._orgs.get(org or DEFAULT_ORG):
            return opened
        raise _starting()

    def _check(self, scope: Scope) -> None:
        if WORKER in scope or OWNER in scope:
            return  # no browser can reach a worker's door, or a unix socket
        host, origin = "", None
        for name, value in scope["headers"]:
            if name == b"host":
                if host:
                    raise Forbidden("a request has one Host")
                host = value.decode("latin-1")
            elif name == b"origin":
                origin = value.decode("latin-1")
        check_host(host, origin, self._hosts, self._pages)
        if scope["client"] is not None:
            self._look_behind_proxies(scope)

    def _look_behind_proxies(self, scope: Scope) -> None:
        """Make the address and the scheme of a request those of the client behind a proxy of ours."""
        peer, _ = scope["client"]
        caller = self._proxies.caller(peer, scope["headers"])
        if caller.address != peer:
            scope["client"] = (caller.address, 0)  # its port is not told
        if caller.scheme:
            scope["scheme"] = caller.scheme


def _trace_of(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"traceparent":
            return traces.checked(value.decode("latin-1"))
    return ""


def _has_span(scope: Scope) -> bool:
    """Whether a request gets a span: its caller named a trace, or it changes something for somebody.

    Sidecars and screens ask all the time, and nobody looks for that.
    """
    if not tracing.enabled():
        return False
    return bool(tracing.current()) or (
        WORKER not in scope and scope.get("method", "GET") in CHANGES
    )


def _end_span(made: tracing.Span, scope: Scope, status: int) -> None:
    """End the span of a request, by the conventions for HTTP."""
    method, route = scope.get("method", "GET"), scope.get(ROUTE, OTHER)
    made.name(f"{method} {route}")
    made.note(
        {"http.request.method": method, "http.route": route, "http.response.status_code": status}
    )
    made.end(fault=f"status {status}" if status >= 500 or not status else "")


def _starting() -> EnvironmentFault:
    return EnvironmentFault("the post room is starting", remedy="try again in a second")


async def _ended(scope: Scope, receive: Receive, send: Send) -> None:
    error = Unauthorized("the API key is not valid any more")
    await refuse(scope, receive, send, error)


def told(scope: Scope, error: Exception) -> PostroomError:
    """What a caller is told of an error; one that nobody expects is logged."""
    if isinstance(error, PostroomError):
        return error
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return StateUnwritable("the disk is full", remedy="free space, then do it again")
    log.error("%s %s failed", scope.get("method", "WebSocket"), scope["path"], exc_info=error)
    return PostroomError("an internal error; the control plane's log has it")


async def refuse(
    scope: Scope,
    receive: Receive,
    send: Send,
    error: PostroomError,
    more: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    """Answer a request with an error, as a problem document; `more` are further headers."""
    seconds = retry_after(error)
    again = [] if seconds is None else [(b"retry-after", str(seconds).encode())]
    await answer(scope, receive, send, http_status(error), problem(error), [*again, *more])


async def answer(
    scope: Scope,
    receive: Receive,
    send: Send,
    status: int,
    body: object,
    more: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    """Answer a request with a text, or a JSON object; that for a WebSocket is refused with it.

    Args:
        more: further headers.
    """
    kind_of_message = "http.response"
    if scope["type"] == "websocket":
        await receive()
        kind_of_message = "websocket.http.response"
    content = body.encode() if isinstance(body, str) else strict_json.dumps(body)
    kind = "text/plain" if isinstance(body, str) else "application/json"
    if isinstance(body, dict) and "type" in body:
        kind = PROBLEM_TYPE
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(content)).encode())]
    headers += more
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": f"{kind_of_message}.start", "status": status, "headers": headers})
    await send({"type": f"{kind_of_message}.body", "body": content})
