"""Live events of a worker's agent: a WebSocket that survives a lost connection.

After a loss the reader connects again and names the last event that it has, so nothing is missed and nothing comes
twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from postroom.client.stream import RECONNECT, Reconnection
from postroom.client.transport import Transport
from postroom.client.websocket import SocketEnded, WebSocket
from postroom.errors import PostroomError, ProtocolViolation
from postroom.protocol.sockets import Code
from postroom_a2a.retry import RetryPolicy

_OURS = frozenset({Code.MALFORMED, Code.TOO_LARGE})
"""Codes that say that the client did something wrong: it would again."""


class WorkerEvents:
    """Iterates over events of a worker, from one thread; `close` may be called from another.

    Args:
        path: of the stream.
        after: id of the last known event, 0 for all, -1 for those from now on.
        retry: attempts to connect again before the error is raised.
        away: called with True when the connection is lost, with False when it is there again.
    """

    def __init__(
        self,
        transport: Transport,
        path: str,
        *,
        after: int = 0,
        retry: RetryPolicy = RECONNECT,
        away: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._transport = transport
        self._path = path
        self._after = after
        self._link = Reconnection(transport, retry, away)
        self._closed, self.connected = self._link.closed, self._link.connected
        self._socket: WebSocket | None = None

    @property
    def after(self) -> int:
        """Id of the last event that came."""
        return self._after

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The events, until `close`.

        Raises:
            PostroomError: the server refused, or could not be reached again.
        """
        try:
            while not self._closed.is_set():
                try:
                    yield from self._connection()
                except PostroomError as error:
                    self._again(error)
        finally:
            self.close()

    def close(self) -> None:
        """End the iteration, even one that waits."""
        self._closed.set()
        if self._socket is not None:
            self._socket.close()

    def _connection(self) -> Iterator[dict[str, Any]]:
        with self._transport.websocket(self._path, {"after_id": self._after}) as socket:
            self._socket = socket
            self._link.made()
            while not self._closed.is_set():
                event = _event_of(socket.receive())
                if event["id"] > self._after:
                    self._after = event["id"]
                    yield event

    def _again(self, error: PostroomError) -> None:
        """As `Reconnection.again`; what we did wrong we would do again."""
        ours = isinstance(error, SocketEnded) and error.close_code in _OURS
        if ours and not self._closed.is_set():
            raise error
        self._link.again(error)


def _event_of(message: str | bytes | None) -> dict[str, Any]:
    try:
        event = json.loads(message or "")
    except ValueError as error:
        raise ProtocolViolation("an event is not JSON") from error
    if not isinstance(event, dict) or type(event.get("id")) is not int:
        raise ProtocolViolation("an event has no id")
    return event
