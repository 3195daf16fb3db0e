"""The client's side of a WebSocket over wsproto, without I/O: bytes in, messages and bytes out (RFC 6455).

`client.websocket` puts it on a socket for callers that wait, `http.stream_socket` on asyncio's streams.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import wsproto
from wsproto import events
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from postroom.errors import ProtocolViolation
from postroom.protocol.sockets import cut_reason

MAX_REFUSAL = 64 * 1024
"""Bytes of an answer that refuses the connection."""


@dataclass(slots=True)
class Refusal:
    """The answer of a server that does not open the WebSocket; `whole` when its body has come."""

    status: int
    body: bytes = b""
    whole: bool = False


class ClientSide:
    """One connection.

    Args:
        most: bytes of a message that is taken.

    Attributes:
        accepted: whether the server has opened it.
        refusal: the server's answer, if that has not.
        messages: what has come and was not fetched.
        closed: code and reason with which the server has closed it.
    """

    def __init__(self, most: int) -> None:
        self.accepted = False
        self.refusal: Refusal | None = None
        self.messages: deque[str | bytes] = deque()
        self.closed: tuple[int, str] | None = None
        self._most = most
        self._protocol = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        self._parts: list[bytes] = []
        self._size = 0

    def opening(self, host: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
        """The request that begins it."""
        pairs = [(name.encode(), value.encode()) for name, value in headers]
        return self._protocol.send(events.Request(host=host, target=target, extra_headers=pairs))

    def take(self, data: bytes) -> bytes:
        """Take what has come; returns what has to be sent for it, as answers to pings.

        Raises:
            ProtocolViolation: it is no WebSocket, or a message is too large.
        """
        answers = b""
        try:
            self._protocol.receive_data(data)
            for event in self._protocol.events():
                answers += self._note(event)
        except (RemoteProtocolError, LocalProtocolError) as error:
            raise ProtocolViolation(f"this is no WebSocket: {error}") from error
        return answers

    def message(self, data: str | bytes) -> bytes:
        """The bytes of a message, b"" if there can be none any more."""
        if isinstance(data, str):
            return self._sent(events.TextMessage(data))
        return self._sent(events.BytesMessage(data))

    def closing(self, code: int, reason: str = "") -> bytes:
        """The bytes that close it, b"" if it is closed or was never open."""
        return self._sent(events.CloseConnection(code=code, reason=cut_reason(reason)))

    def _sent(self, event: events.Event) -> bytes:
        try:
            return self._protocol.send(event)
        except LocalProtocolError:  # its end came first
            return b""

    def _note(self, event: events.Event) -> bytes:
        match event:
            case events.AcceptConnection():
                self.accepted = True
            case events.RejectConnection():
                self.refusal = Refusal(event.status_code, whole=not event.has_body)
            case events.RejectData() if self.refusal is not None:
                self.refusal.body = (self.refusal.body + bytes(event.data))[:MAX_REFUSAL]
                self.refusal.whole = event.body_finished
            case events.Message():
                self._add(event)
            case events.Ping():
                return self._sent(event.response())
            case events.CloseConnection():
                self.closed = int(event.code), event.reason or ""
                return self._sent(event.response())
        return b""

    def _add(self, event: events.Message) -> None:
        data = event.data
        text = isinstance(data, str)
        self._parts.append(data.encode() if isinstance(data, str) else bytes(data))
        self._size += len(self._parts[-1])
        if self._size > self._most:
            raise ProtocolViolation(f"a message is over {self._most} bytes")
        if event.message_finished:
            whole = b"".join(self._parts)
            self.messages.append(whole.decode() if text else whole)
            self._parts, self._size = [], 0
