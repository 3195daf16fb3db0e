"""Live events of the control plane: server-sent events that survive a lost connection.

After a loss the reader connects again and names its last record, so nothing is missed. It drops repeated events, so
nothing is shown twice.
"""

from __future__ import annotations

import contextlib
import math
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx2

from postroom.client.rules import Query
from postroom.client.transport import Transport
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


class Reconnection:
    """The connections of one reader, one after the other, until `closed` is set.

    Args:
        retry: attempts to connect again before the error is raised.
        away: called with True when the connection is lost, with False when it is there again.
    """

    def __init__(
        self, transport: Transport, retry: RetryPolicy, away: Callable[[bool], None]
    ) -> None:
        self._transport = transport
        self._losses = Losses(retry)
        self._tell_away = away
        self._is_away = False
        self.closed = threading.Event()
        self.connected = threading.Event()
        """Set once the server has answered for the first time."""

    def made(self) -> None:
        """Note that the server has answered."""
        self._losses.connected()
        self.connected.set()
        self._set_away(False)

    def again(self, error: PostroomError) -> None:
        """Wait before the next connection, or raise `error` if no further one is allowed."""
        if self.closed.is_set():
            return
        if self._transport.hopeless(error):
            raise error
        pause = self._losses.after(error)
        self._set_away(True)
        self.closed.wait(pause)
        with contextlib.suppress(NotRunning):  # not yet: the next attempt fails and counts
            self._transport.look_up()

    def _set_away(self, away: bool) -> None:
        if self._is_away != away:
            self._is_away = away
            self._tell_away(away)


class EventStream:
    """Iterates over the events of a feed, chat or task, from one thread; `close` may be called from another.

    Args:
        topic: query that names the feed or chat.
        after: id of the last known record.
        retry: attempts to connect again before the error is raised.
        is_last: whether an event is the last one; None where there is no last one.
    """

    def __init__(
        self,
        transport: Transport,
        topic: Query,
        *,
        after: str,
        retry: RetryPolicy = RECONNECT,
        path: str = "/v1/stream",
        is_last: Callable[[Event], bool] | None = None,
        away: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._transport = transport
        self._topic = topic
        self._after = after
        self._path = path
        self._is_last = is_last
        self._seen = SeenEvents()
        self._link = Reconnection(transport, retry, away)
        self._closed, self.connected = self._link.closed, self._link.connected
        self._response: httpx2.Response | None = None

    @property
    def after(self) -> str:
        """Id of the last known record: where another stream can go on."""
        return self._after

    def __iter__(self) -> Iterator[Event]:
        """The events, until the last one or `close`.

        Raises:
            PostroomError: the server refused, or could not be reached again.
        """
        while not self._closed.is_set():
            try:
                yield from self._connection()
                self._link.again(PeerError("the post room ended the stream"))
            except PostroomError as error:
                self._link.again(error)

    def close(self) -> None:
        """End the iteration, even one that waits for bytes."""
        self._closed.set()
        response = self._response
        if response is not None:
            _shut(response)

    def _connection(self) -> Iterator[Event]:
        query = {**self._topic, "after": self._after}
        with self._transport.stream(self._path, query, silence=STREAM_SILENCE) as response:
            self._response = response
            self._link.made()
            if (
                self._closed.is_set()
            ):  # closed between the two lines above: nobody else shuts this one
                return
            for raw in httpx2.EventSource(response):
                if self._seen.is_new(raw):
                    event = event_of(raw)
                    if event.is_record:
                        self._after = event.id
                    yield event
                    if self._is_last is not None and self._is_last(event):
                        self._closed.set()
                        return


def event_of(raw: httpx2.ServerSentEvent) -> Event:
    """The event in its wire form; raises ProtocolViolation if that has no JSON object."""
    try:
        data = raw.json()
    except ValueError as error:
        raise ProtocolViolation("an event of the stream is not JSON") from error
    if not isinstance(data, dict):
        raise ProtocolViolation("an event of the stream is not a JSON object")
    return Event(raw.id, raw.event, data)


def _shut(response: httpx2.Response) -> None:
    """Wake a thread that reads `response`: closing the socket would not wake it, shutting it down does."""
    stream = response.extensions.get("network_stream")
    raw = stream.get_extra_info("socket") if stream is not None else None
    if isinstance(raw, socket.socket):
        with contextlib.suppress(OSError):  # it has ended by itself
            raw.shutdown(socket.SHUT_RDWR)
