"""The requests that run now: each ends with the key that opened it, and what it changed is in the audit log.

`Guard` stands before the API of one organisation. A read whose key is revoked, replaced or expired is cancelled: it is
answered with 401, or its connection is closed in the middle of the answer. What changes something goes on, since it was
admitted; its caller is cut off at once and gets no answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from contextvars import ContextVar
from typing import Any

from postroom.audit.log import AuditLog
from postroom.client.locate import CLI_AGENT
from postroom.control.http_protocol import ABORT, PRINCIPAL
from postroom.control.limits import MARKS, CallerLimits
from postroom.control.ops.table import SOCKET
from postroom.control.org_router import STREAMED, SWITCHING, Receive, Scope, Send
from postroom.control.principals import REQUEST
from postroom.protocol.audit import ALLOWED, API, DENIED, AuditRecord
from postroom.protocol.principal import KEY, OPERATOR_KEY, Principal
from postroom.protocol.tasks import Door
from postroom_a2a.times import format_time

READS = frozenset({"GET", "HEAD", "OPTIONS"})

ONLY_READS = "postroom.only_reads"
"""Scope key: a request of another verb has changed nothing, so it is no act for the audit log."""

MAX_URL = 2048
"""Characters of a path in a record."""

MAX_DEAD = 4096
"""Ids of ended keys that are remembered: a look-up that was under way when a key ended takes a moment."""

_about: ContextVar[dict[str, str] | None] = ContextVar("about", default=None)


def acted_on(**ids: str) -> None:
    """Say what the running request has made or changed: `message`, `task`, `worker`, or `about` for another id.

    A WebSocket that says so is in the audit log, like each request that changes something.
    """
    noted = _about.get()
    if noted is not None:
        noted.update(ids)


def came_by() -> Door:
    """The door of the running request of the HTTP API: its client says whether it is Postroom's command."""
    request = _current.get()
    headers = request.scope["headers"] if request is not None else ()
    said = next((value for name, value in headers if name == b"user-agent"), b"")
    return Door.CLI if said.startswith(CLI_AGENT.encode()) else Door.API


def stands_on(granter: str, grantees: Collection[str]) -> None:
    """Say that the running request goes on as long as `granter` lets in one of `grantees` (uids)."""
    request = _current.get()
    if request is not None:
        request.granter, request.grantees = granter, frozenset(grantees)


class Request:
    """One running request.

    Attributes:
        limit: ends it, where it only reads; None where it may change something.
        stream: it counts as an open stream of its key.
        granter, grantees: whose grants it stands on; "" for none.
    """

    __slots__ = (
        *("_timer", "cut_off", "grantees", "granter", "key", "limit", "scope", "started"),
        "stream",
    )

    def __init__(self, scope: Scope, limit: asyncio.Timeout | None) -> None:
        self.scope = scope
        self.limit = limit
        self.key = ""
        self.started = False
        self.cut_off = False
        self.stream = False
        self.granter = ""
        self.grantees: frozenset[str] = frozenset()
        self._timer: asyncio.TimerHandle | None = None

    def cut(self) -> None:
        """End it for its caller."""
        if self.cut_off:
            return
        self.cut_off = True
        if self.limit is not None:
            self.limit.reschedule(0.0)
        if self.limit is None or self.started:
            self.abort()

    def abort(self) -> None:
        """Close its connection."""
        abort: Callable[[], None] | None = self.scope.get(ABORT)
        if abort is not None:
            abort()

    def cut_in(self, seconds: float) -> None:
        """Cut it after so many seconds, unless it has ended."""
        self._timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self.cut)

    def end(self) -> None:
        """Forget the time at which it would be cut."""
        if self._timer is not None:
            self._timer.cancel()


class InFlight:
    """The running requests of all organisations, by the key that opened them.

    Args:
        limits: of callers.
    """

    def __init__(
        self, clock: Callable[[], float] = time.time, limits: CallerLimits | None = None
    ) -> None:
        self.limits = limits or CallerLimits()
        self._clock = clock
        self._of_key: dict[str, set[Request]] = {}
        self._dead: dict[str, None] = {}

    def enter(self, request: Request, principal: Principal) -> None:
        """Note whose request it is, once that is known."""
        key = principal.key_id
        if not key or request.key:
            return
        request.key = key
        self._of_key.setdefault(key, set()).add(request)
        if principal.expires_at is not None:
            request.cut_in(principal.expires_at - self._clock())
        if key in self._dead:  # it was revoked while it was looked up
            request.cut()

    def stream(self, request: Request) -> None:
        """Note that a request is going to be a stream of events, or a WebSocket.

        Raises:
            Refused: its key has as many as it may have.
        """
        if request.key and not request.stream:
            self.limits.open_stream(request.key)
            request.stream = True

    def leave(self, request: Request) -> None:
        """Forget a request that has ended."""
        request.end()
        if request.stream:
            self.limits.close_stream(request.key)
            request.stream = False
        of_key = self._of_key.get(request.key)
        if of_key is not None:
            of_key.discard(request)
            if not of_key:
                del self._of_key[request.key]

    def cut(self, key_id: str) -> None:
        """End all requests of a key that is valid no more; but for the operator's, its id never is again."""
        if key_id != OPERATOR_KEY:
            self._dead[key_id] = None
            while len(self._dead) > MAX_DEAD:
                del self._dead[next(iter(self._dead))]
        current = _current.get()
        for request in list(self._of_key.get(key_id, ())):
            if request is not current:  # who replaces a key gets its answer
                request.cut()

    def cut_grants(self, granters: Collection[str], grantees: Collection[str]) -> None:
        """End all requests that stand on a grant of one of `granters` to one of `grantees`."""
        for request in [each for of_key in self._of_key.values() for each in of_key]:
            if request.granter in granters and not request.grantees.isdisjoint(grantees):
                request.cut()


_current: ContextVar[Request | None] = ContextVar("request", default=None)

Serve = Callable[[Scope, Receive, Send], Awaitable[None]]


class Guard:
    """Serves the requests of one organisation.

    Args:
        audit: gets a record of each act.
    """

    def __init__(
        self, in_flight: InFlight, audit: AuditLog, org: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._in_flight = in_flight
        self._audit = audit
        self._org = org
        self._clock = clock

    async def serve(
        self, scope: Scope, receive: Receive, send: Send, serve: Serve, refused: Serve
    ) -> None:
        """Serve one request by `serve`; `refused` answers it where its key ended before its answer began."""
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send, serve, refused)
        elif scope["method"] in READS:
            await self._read(scope, receive, send, serve, refused)
        else:
            await self._change(scope, receive, send, serve)

    async def _read(
        self, scope: Scope, receive: Receive, send: Send, serve: Serve, refused: Serve
    ) -> None:
        limit = asyncio.timeout(None)
        request = scope[REQUEST] = Request(scope, limit)

        async def note(message: MutableMapping[str, Any]) -> None:
            request.started = True
            await send(message)

        current = _current.set(request)
        try:
            async with limit:
                await serve(scope, receive, note)
        except TimeoutError:
            if not request.cut_off:
                raise
            if not request.started:
                await refused(scope, receive, send)
        finally:
            _current.reset(current)
            self._in_flight.leave(request)

    async def _socket(
        self, scope: Scope, receive: Receive, send: Send, serve: Serve, refused: Serve
    ) -> None:
        """Serve a WebSocket: it ends with its key, and is in the audit log if it has acted on anything."""
        ids: dict[str, str] = {}
        about = _about.set(ids)
        try:
            await self._read(scope, receive, send, serve, refused)
        finally:
            _about.reset(about)
            principal: Principal | None = scope.get(PRINCIPAL)
            if ids and principal is not None and principal.method == KEY:
                self._record(scope, principal, SWITCHING, ids)

    async def _change(self, scope: Scope, receive: Receive, send: Send, serve: Serve) -> None:
        request = scope[REQUEST] = Request(scope, None)
        ids: dict[str, str] = {}
        recorded = False

        def record(status: int) -> None:
            nonlocal recorded
            principal: Principal | None = scope.get(PRINCIPAL)
            # What a worker does through its door the gateway has recorded.
            if principal is not None and principal.method == KEY and ONLY_READS not in scope:
                recorded = True
                self._record(scope, principal, status, ids)

        async def note(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                record(message["status"])  # before its answer, which may go on for an hour
            if not request.cut_off:
                await send(message)

        about, current = _about.set(ids), _current.set(request)
        try:
            await serve(scope, self._weighed(request, receive), note)
        finally:
            _about.reset(about)
            _current.reset(current)
            self._in_flight.leave(request)
            if not recorded:
                record(0)

    def _weighed(self, request: Request, receive: Receive) -> Receive:
        """Receives a body, which waits for its turn among those of its key before it is worked on."""
        size = marks = 0

        async def weighed() -> MutableMapping[str, Any]:
            nonlocal size, marks
            message = await receive()
            if request.scope.get(STREAMED):
                return message  # its operation bounds it
            body: bytes = message.get("body", b"")
            size += len(body)
            if size >= MARKS:
                marks += body.count(b",") + body.count(b"[") + body.count(b"{")
                if message["type"] == "http.request" and not message.get("more_body"):
                    wait = self._in_flight.limits.weigh(request.key, size, marks)
                    if wait:
                        await asyncio.sleep(wait)
            return message

        return weighed

    def _record(self, scope: Scope, principal: Principal, status: int, ids: dict[str, str]) -> None:
        record = AuditRecord(
            at=format_time(self._clock()),
            by=API,
            org=self._org,
            protocol=API,
            verb=scope.get("method", SOCKET),
            url=scope["path"][:MAX_URL],
            verdict=DENIED if status == 403 else ALLOWED,
            reason="the key does not allow it" if status == 403 else "",
            status=status,
            principal=principal.uid,
            nick=principal.nick,
            key=principal.key_id,
            message=ids.get("message", ""),
            task=ids.get("task", ""),
            worker=ids.get("worker", ""),
            about=ids.get("about", ""),
            client=(scope["client"] or ("",))[0],
        )
        self._audit.note(record.encode())
