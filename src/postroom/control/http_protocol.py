"""What a connection may take: HTTP by httptools below uvicorn, with bounds that uvicorn does not have.

Any process of this machine can connect without a key, and uvicorn waits for ever for a request that does not come or
does not end. `DeadlineProtocol` bounds the time, the number and the heads of such requests.
"""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any, ClassVar, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from postroom.errors import (
    PROBLEM_TYPE,
    EnvironmentFault,
    HeadTooLarge,
    MalformedRequest,
    PostroomError,
    ProtocolViolation,
    http_status,
    problem,
)
from postroom.protocol.limits import MAX_HEAD, MAX_HEADERS

ABANDONED = "postroom.abandoned"
"""Scope key: the request changes nothing, so it is cancelled when its caller goes; True once it was."""

GONE = "postroom.gone"
"""Scope key: True once the caller has gone before its answer had left."""

ABORT = "postroom.abort"
"""Scope key: a function that closes the connection of the request."""

PRINCIPAL = "postroom.principal"
"""Scope key: the principal of an admitted request."""

PACED = "postroom.paced"
"""Scope key: the application itself bounds the time between two pieces of the request's body."""

TURNED_AWAY = 500
"""Connections above the limit that are told so, at most an eighth of it; further ones are cut without a word."""

WANTED_DESCRIPTORS = 65_536
"""Open files and connections, if the machine allows so many: 10,000 callers that wait, and as many workers' needs."""


KEPT = 8192
"""Open files that are for the work of the post room, most of them for its workers' connections."""


def raise_descriptors() -> None:
    """Allow this process as many open files as the machine lets it have, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, WANTED_DESCRIPTORS)
    if soft not in (resource.RLIM_INFINITY, wanted) and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def most_connections() -> int:
    """The most connections of all ports: half of the descriptors, or all but `KEPT`."""
    return max(_descriptors() // 2, _descriptors() - KEPT)


def most_near() -> int:
    """The most connections of the owner's socket: an eighth of the descriptors, or of those that are kept."""
    return min(_descriptors(), KEPT) // 8


def _descriptors() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft > 0 else WANTED_DESCRIPTORS


class Connections(ServerState):
    """The connections of the listeners that share a limit; one timer looks after all of them.

    Args:
        most: open connections; 0 for `most_connections`.
    """

    deadline: ClassVar[float] = 15.0
    """Seconds for a whole request; its connection is cut after twice as long at the latest."""

    def __init__(self, most: int = 0) -> None:
        super().__init__()
        # Those that wait for a next request, the oldest first: without a key, and with one.
        self.idle: tuple[dict[DeadlineProtocol, None], dict[DeadlineProtocol, None]] = ({}, {})
        self.most = most or most_connections()
        self._timer: asyncio.TimerHandle | None = None

    def make_room(self) -> None:
        """Where there are too many, cut one that waits for a next request; those that have shown a key are the last."""
        if len(self.connections) > self.most:
            for waiting in self.idle:
                if waiting:
                    next(iter(waiting)).give_way()
                    return

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look after the connections from now on, as long as there are any."""
        if self._timer is None:
            self._timer = loop.call_later(self.deadline, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        for connection in list(self.connections):
            if isinstance(connection, DeadlineProtocol):
                connection.look()
        if self.connections:
            self.watch(loop)


class DeadlineProtocol(HttpToolsProtocol):
    """A connection that is cut when its request takes too long.

    Attributes:
        keyed_idle: seconds that it is kept for a next request once it has shown a valid key; others have uvicorn's 5.
        least: bytes in a deadline with which a longer request counts as going on: a large upload.
    """

    keyed_idle: ClassVar[float] = 75.0
    least: ClassVar[int] = 64 * 1024
    server_state: Connections
    _seen: tuple[int, bool] | None = None
    _begun = 0
    _taken = 0
    _head = 0
    _in_head = False
    _too_many = False
    _too_long = False
    _running: tuple[asyncio.Task[None], MutableMapping[str, Any]] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Start the deadline; turn away a connection above the limit."""
        super().connection_made(transport)
        self.server_state.make_room()
        over = len(self.connections) - self.server_state.most
        self._too_many = over > 0
        if over > min(TURNED_AWAY, max(1, self.server_state.most // 8)):
            transport.abort()
        self.server_state.watch(self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """End a request that only waited for this caller."""
        super().connection_lost(exc)
        self._busy()
        if self._running is not None and not self._running[0].done():
            task, scope = self._running
            scope[GONE] = True
            if ABANDONED in scope:
                scope[ABANDONED] = True
                task.cancel()
        self._running = None

    def data_received(self, data: bytes) -> None:
        """Count the bytes of the request and of its head."""
        if self._too_many:
            self._turn_away()
            return
        self._taken += len(data)
        self._busy()
        super().data_received(data)
        if self._in_head:
            self._head += len(data)
            if self._head > MAX_HEAD and not self.transport.is_closing():
                self._refuse(HeadTooLarge(f"the head of the request is over {MAX_HEAD} bytes"))

    def on_message_begin(self) -> None:
        """Begin to count the head."""
        self._in_head, self._head = True, 0
        self._begun += 1
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """End the head. After an error here nothing of the request is read."""
        self._in_head = False
        if len(self.headers) > MAX_HEADERS:
            self._too_long = True
            raise ProtocolViolation(f"more than {MAX_HEADERS} headers")
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that uvicorn cannot read; `msg` is uvicorn's own text about it."""
        if self._too_long:
            self._refuse(HeadTooLarge(f"the request has more than {MAX_HEADERS} headers"))
        else:
            self._refuse(MalformedRequest(f"this is no request of HTTP/1.1: {msg}"))

    def _refuse(self, error: PostroomError) -> None:
        self.transport.write(_refusal(error))
        self.transport.close()

    def on_response_complete(self) -> None:
        """Wait for the next request: longer for who has a key, whose pool of connections keeps this one."""
        if PRINCIPAL in self.cycle.scope:
            self.timeout_keep_alive = self.keyed_idle
        super().on_response_complete()
        if self._waits():
            self.server_state.idle[self.timeout_keep_alive == self.keyed_idle][self] = None

    def give_way(self) -> None:
        """End, for another connection; its place is free at once."""
        self._busy()
        self.connections.discard(self)
        self.transport.abort()

    def _waits(self) -> bool:
        """Whether it is open and idle: nothing of a next request has come."""
        armed = self.timeout_keep_alive_task is not None
        return armed and not self._in_head and not self.transport.is_closing()

    def _busy(self) -> None:
        for waiting in self.server_state.idle:
            waiting.pop(self, None)

    def look(self) -> None:
        """Cut the connection if it is where it was at the last look: in the same request, or waiting for one."""
        if self._waits():
            self._seen = None  # its timer closes it
            return
        cycle = self.cycle
        paced = cycle is not None and PACED in cycle.scope
        unfinished = cycle is None or (cycle.more_body and not paced) or cycle.response_complete
        now = (self._begun, unfinished)
        if unfinished and now == self._seen and not self._goes_on():
            self.transport.abort()
        self._seen = now
        self._taken = 0

    def _goes_on(self) -> bool:
        """Whether the application reads the request's body, and enough of it comes."""
        taken = self.cycle is not None and not self.cycle.response_complete
        return taken and self._taken >= self.least

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cast("MutableMapping[str, Any]", cycle.scope)[ABORT] = self.transport.abort
        if cycle.scope["method"] != "HEAD":  # whose answer is a head alone
            cycle.transport = cast("asyncio.Transport", _AnswerTransport(self.transport, self.loop))
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        self._running = (task, cast("MutableMapping[str, Any]", cycle.scope))

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: any caller could fill the log."""

    def _turn_away(self) -> None:
        if not self.transport.is_closing():
            self._refuse(_TOO_MANY)


class _AnswerTransport:
    """The transport of one answer: its head goes out in one write with what follows in the same turn of the loop.

    A write of its own would wake the client for a head alone.
    """

    __slots__ = ("_begun", "_head", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._begun = False
        self._head = b""

    def write(self, data: bytes) -> None:
        """Write; the first piece is the head."""
        if not self._begun:
            self._begun, self._head = True, data
            self._loop.call_soon(self._write_head)
        elif self._head:
            head, self._head = self._head, b""
            self._transport.write(head + data)
        else:
            self._transport.write(data)

    def _write_head(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)

    def is_closing(self) -> bool:
        """Whether the connection closes."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close the connection behind what was written."""
        self._write_head()
        self._transport.close()


_TOO_MANY = EnvironmentFault("too many are connected", remedy="try again in a second")


def _refusal(error: PostroomError) -> bytes:
    """An answer that the connection makes itself, before any application."""
    status = http_status(error)
    body = json.dumps(problem(error)).encode()
    again = "retry-after: 1\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else ""
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {PROBLEM_TYPE}\r\n{again}"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
