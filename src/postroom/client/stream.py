"""Live events from the control plane that survive a lost connection: server-sent events, and a worker's WebSocket.

After a loss the reader connects again and names its last record, so nothing is missed. It drops repeated events, so
nothing is shown twice. `AsyncEventStream` and `AsyncWorkerEvents` are for tasks, the others for a thread that reads and
another one that ends it.
"""

from __future__ import annotations

import contextlib
import math
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypeVar

import httpx2

from postroom.client.calls import json_object
from postroom.client.rules import EVENT_STREAM, Query
from postroom.client.transport import AsyncTransport, Transport
from postroom.client.wire import each
from postroom.errors import (
    BusDisconnected,
    EnvironmentFault,
    NotRunning,
    PeerError,
    PostroomError,
    ProtocolViolation,
    Unauthorized,
)
from postroom.protocol.intervals import STREAM_SILENCE
from postroom.protocol.sockets import Code
from postroom_a2a.retry import RetryPolicy

SETTLED = 10.0
"""Seconds after which a connection counts as good, so that earlier failures are forgotten."""

REMEMBERED = 4096
"""Events whose ids are kept to find duplicates."""

RECONNECT = RetryPolicy(attempts=12, base=0.2, cap=5.0)
"""About half a minute in all: long enough for `postroom down; postroom up`."""

FOR_EVER = RetryPolicy(attempts=sys.maxsize, base=0.2, cap=5.0)
"""For a reader that must survive any outage of the post room."""

_RECORDS = frozenset(
    {"post", "activity", "mail", "announcement", "update", "task", "alert", "approval", "open"}
)
_LOST = (NotRunning, PeerError, Unauthorized, BusDisconnected)
_OURS = frozenset({Code.MALFORMED, Code.TOO_LARGE})
"""Codes that say that the client did something wrong: it would again."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its kind (docs/api.md, Routes) and the JSON object that came with it."""

    id: str
    kind: str
    data: dict[str, Any]

    @property
    def is_record(self) -> bool:
        """Whether its id is a place to go on from: a receipt or a trouble brings no new record."""
        return self.kind in _RECORDS


class SeenEvents:
    """The last `REMEMBERED` events, to recognise a repeated one."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        self._limit = limit
        self._keys: OrderedDict[tuple[str, ...], None] = OrderedDict()

    def is_new(self, event: httpx2.ServerSentEvent) -> bool:
        """Whether this is the first time that `event` comes.

        A receipt counts with its content: several of them may carry the id of one record.
        """
        key = (event.event, event.id) if event.event in _RECORDS else (event.id, event.data)
        if key in self._keys:
            return False
        self._keys[key] = None
        if len(self._keys) > self._limit:
            self._keys.popitem(last=False)
        return True


class Losses:
    """Decides whether a lost connection of a stream is made again, and after how long."""

    def __init__(self, retry: RetryPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self._retry = retry
        self._clock = clock
        self._failures = 0
        self._since = math.inf

    def connected(self) -> None:
        """Note that the server has answered."""
        self._since = self._clock()

    def after(self, error: PostroomError) -> float:
        """Seconds to wait before the next connection; raises `error` if no further one is allowed."""
        settled = self._clock() - self._since > SETTLED
        self._failures = 1 if settled else self._failures + 1
        self._since = math.inf
        # Plain 503: the post room is starting or ending. Other faults have types of their own.
        lost = isinstance(error, _LOST) or type(error) is EnvironmentFault
        if (
            not lost
            or isinstance(error, ProtocolViolation)
            or self._failures >= self._retry.attempts
        ):
            raise error
        return self._retry.delay(self._failures)


T = TypeVar("T")


class _AsyncReader(Generic[T]):
    """Reads one stream over as many connections as it takes; leave the iteration early only to close it.

    Args:
        retry: attempts to connect again before the error is raised.
        away: called with True when the connection is lost, with False when it is there again.

    Attributes:
        ended: set where the iteration is to end.
        connected: called when the server has answered.
        shut: ends the open connection, from any thread.
        pause: waits before the next connection.
    """

    def __init__(
        self, transport: AsyncTransport, retry: RetryPolicy, away: Callable[[bool], None]
    ) -> None:
        self._transport = transport
        self._losses = Losses(retry)
        self._tell_away = away
        self._is_away = False
        self.ended = False
        self.connected: Callable[[], None] = lambda: None
        self.shut: Callable[[], object] = lambda: None
        self.pause: Callable[[float], Coroutine[Any, Any, None]] = transport.wire.pause

    async def __aiter__(self) -> AsyncGenerator[T]:
        """What comes, until the last one.

        Raises:
            PostroomError: the server refused, or could not be reached again.
        """
        while not self.ended:
            try:
                async with aclosing(self._connection()) as found:
                    async for each_ in found:
                        yield each_
                error: PostroomError = PeerError("the post room ended the stream")
            except PostroomError as lost:
                error = lost
            if not self.ended:
                await self._again(error)

    def _connection(self) -> AsyncGenerator[T]:
        """What comes over one connection."""
        raise NotImplementedError

    def _made(self) -> None:
        """Note that the server has answered."""
        self._losses.connected()
        self.connected()
        self._set_away(False)

    async def _again(self, error: PostroomError) -> None:
        """Wait before the next connection, or raise `error` if no further one is allowed."""
        if self._transport.hopeless(error):
            raise error
        pause = self._losses.after(error)
        self._set_away(True)
        await self.pause(pause)
        with contextlib.suppress(NotRunning):  # not yet: the next attempt fails and counts
            await self._transport.wire.work(self._transport.look_up)  # a keyring may ask a person

    def _set_away(self, away: bool) -> None:
        if self._is_away != away:
            self._is_away = away
            self._tell_away(away)


class AsyncEventStream(_AsyncReader[Event]):
    """The events of a feed, chat or task.

    Args:
        topic: query that names the feed or chat.
        after: id of the last known record.
        is_last: whether an event is the last one; None where there is no last one.

    Attributes:
        after: id of the last known record: where another stream can go on.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        topic: Query,
        *,
        after: str,
        retry: RetryPolicy = RECONNECT,
        path: str = "/v1/stream",
        is_last: Callable[[Event], bool] | None = None,
        away: Callable[[bool], None] = lambda _: None,
    ) -> None:
        super().__init__(transport, retry, away)
        self.after = after
        self._topic = topic
        self._path = path
        self._is_last = is_last
        self._seen = SeenEvents()

    async def _connection(self) -> AsyncGenerator[Event]:
        query = {**self._topic, "after": self.after}
        async with self._transport.exchange(
            "GET", self._path, silence=STREAM_SILENCE, params=query, headers=EVENT_STREAM
        ) as response:
            self.shut = partial(_shut, response)
            self._made()
            if self.ended:  # between the two lines above: nobody else shuts this one
                return
            async for raw in httpx2.EventSource(response):
                if self._seen.is_new(raw):
                    data = json_object(raw.data, "an event of the stream")
                    event = Event(raw.id, raw.event, data)
                    if event.is_record:
                        self.after = event.id
                    yield event
                    if self._is_last is not None and self._is_last(event):
                        self.ended = True
                        return


class AsyncWorkerEvents(_AsyncReader[dict[str, Any]]):
    """Events of a worker's agent.

    Args:
        path: of the stream.
        after: id of the last known event, 0 for all, -1 for those from now on.

    Attributes:
        after: id of the last event that came.
    """

    def __init__(
        self,
        transport: AsyncTransport,
        path: str,
        *,
        after: int = 0,
        retry: RetryPolicy = RECONNECT,
        away: Callable[[bool], None] = lambda _: None,
    ) -> None:
        super().__init__(transport, retry, away)
        self.after = after
        self._path = path

    async def _connection(self) -> AsyncGenerator[dict[str, Any]]:
        async with self._transport.websocket(self._path, {"after_id": self.after}) as link:
            self.shut = link.close
            self._made()
            while not self.ended:
                event = json_object(await link.received(), "an event")
                if type(event.get("id")) is not int:
                    raise ProtocolViolation("an event has no id")
                if event["id"] > self.after:
                    self.after = event["id"]
                    yield event

    async def _again(self, error: PostroomError) -> None:
        """As before; what we did wrong we would do again."""
        if getattr(error, "close_code", None) in _OURS:
            raise error
        await super()._again(error)


class _Reader(Generic[T]):
    """Iterates over what an asynchronous reader finds, from one thread; `close` may be called from another."""

    kind: ClassVar[Callable[..., Any]]

    def __init__(self, transport: Transport, place: Any, **how: Any) -> None:
        self._begin(self.kind(transport.inner, place, **how))

    @classmethod
    def over(cls, link: _AsyncReader[T]) -> Self:
        """What reads `link`."""
        made = cls.__new__(cls)
        cls._begin(made, link)
        return made

    def _begin(self, link: Any) -> None:
        self._link = link
        self._closed, self.connected = threading.Event(), threading.Event()
        link.connected, link.pause = self.connected.set, self._pause

    @property
    def after(self) -> Any:
        """Id of the last known record: where another stream can go on."""
        return self._link.after

    def __iter__(self) -> Iterator[T]:
        """What comes, until the last one or `close`; raises PostroomError as the other does."""
        return each(aiter(self._link))

    def close(self) -> None:
        """End the iteration, even one that waits."""
        self._link.ended = True
        self._closed.set()
        self._link.shut()

    async def _pause(self, seconds: float) -> None:
        self._closed.wait(seconds)


class EventStream(_Reader[Event]):
    """As `AsyncEventStream`, for threads."""

    kind = AsyncEventStream


class WorkerEvents(_Reader[dict[str, Any]]):
    """As `AsyncWorkerEvents`, for threads."""

    kind = AsyncWorkerEvents


def _shut(response: httpx2.Response) -> None:
    """Wake a thread that reads `response`: closing the socket would not wake it, shutting it down does."""
    stream = response.extensions.get("network_stream")
    raw = stream.get_extra_info("socket") if stream is not None else None
    if isinstance(raw, socket.socket):
        with contextlib.suppress(OSError):  # it has ended by itself
            raw.shutdown(socket.SHUT_RDWR)
