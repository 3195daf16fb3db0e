"""The client's frames: CONNECT, PUB, HPUB, SUB, UNSUB, PING, PONG, each in one spelling. Pure.

Verbs in capitals, one space between fields, digits without leading zeros, CR LF. As the common clients do, a client
may leave an optional field out or empty. A server accepts more spellings than these, and smuggling relies on that; so
any other spelling ends the connection.
"""

from __future__ import annotations

import re
from typing import Protocol

from postroom.errors import ProtocolViolation
from postroom.gateway.nats.stream import COMMON, END, TOO_LARGE, UNKNOWN, Stream, number
from postroom.protocol.limits import MAX_CONTROL_LINE
from postroom_a2a.bounds import MAX_CLIENT_LINE, MAX_PAYLOAD

MIN_HEADER = 12
"""Bytes of the smallest header block, `NATS/1.0`, CR LF, CR LF."""

MAX_SID = 20

TURN = 512
"""Frames that are read at once: a piece can hold 40,000, and all other connections wait meanwhile."""

_PUB = re.compile(rb"PUB %b(?: %b)? (0|[1-9][0-9]{0,8})\r\n" % (COMMON, COMMON)).match
_HPUB = re.compile(
    rb"HPUB %b(?: %b)? ([1-9][0-9]{0,8}) ([1-9][0-9]{0,8})\r\n" % (COMMON, COMMON)
).match


class ClientHandler(Protocol):
    """Decides about a client's frames; False swallows one."""

    def connect(self, options: bytes) -> bytes:
        """The line that replaces `CONNECT <options>`.

        Raises:
            ProtocolViolation: the connection must end.
        """
        ...

    def publish(
        self, subject: bytes, reply: bytes, header: int, size: int, data: bytes, start: int
    ) -> bool:
        """PUB or (`header` is not 0) HPUB; the body begins at `start` of `data` and may reach beyond its end."""
        ...

    def subscribe(self, subject: bytes, queue: bytes, sid: bytes) -> bool:
        """SUB."""
        ...

    def unsubscribe(self, sid: bytes, most: int) -> bool:
        """UNSUB, at once or (`most` is not 0) after that many messages."""
        ...


class ClientStream(Stream):
    """The direction out of the sandbox.

    Attributes:
        max_payload: bytes of one message, by the server's INFO.
    """

    most = TURN

    def __init__(self, handler: ClientHandler) -> None:
        super().__init__(MAX_CONTROL_LINE)
        self.max_payload = MAX_PAYLOAD
        self._handler = handler
        self._connected = False

    def _run(self, data: bytes, position: int, length: int) -> tuple[int, int]:
        publish, header = self._handler.publish, 0
        left = self.most - self.frames
        while self._connected and left:
            if found := _PUB(data, position):
                subject, reply, digits = found.groups(b"")
                header = 0
            elif found := _HPUB(data, position):
                subject, reply, first, digits = found.groups(b"")
                header = int(first)
                if header < MIN_HEADER:
                    break
            else:
                break
            start, size = found.end(), int(digits)
            following = start + size + 2
            if (
                following > length
                or data[following - 2 : following] != END
                or size > self.max_payload
                or header > size
            ):
                break
            left -= 1
            if not publish(subject, reply, header, size, data, start):
                self.frames = self.most - left
                return position, following
            position = following
        self.frames = self.most - left
        return position, 0

    def _line(
        self, data: bytes, position: int, end: int, length: int
    ) -> tuple[bool | bytes, int] | None:
        fields = data[position:end].split(b" ")
        verb = fields[0]
        if not self._connected:
            return self._first(verb, data[position + 8 : end]), end + 2
        start, count = end + 2, len(fields)
        reply = b""
        if verb == b"PUB":
            header = 0
            if count == 4:
                _, subject, reply, digits = fields
            elif count == 3:
                _, subject, digits = fields
            else:
                raise ProtocolViolation(UNKNOWN)
        elif verb == b"HPUB":
            if count == 5:
                _, subject, reply, first, digits = fields
            elif count == 4:
                _, subject, first, digits = fields
            else:
                raise ProtocolViolation(UNKNOWN)
            header = number(first)
            if header < MIN_HEADER:
                raise ProtocolViolation(UNKNOWN)
        else:
            return self._other(verb, fields), start
        size = number(digits)
        if header > size or not subject:
            raise ProtocolViolation(UNKNOWN)
        if size > self.max_payload:
            raise ProtocolViolation(TOO_LARGE)
        if not self._complete(data, start, size, header, length):
            return None
        allowed = self._handler.publish(subject, reply, header, size, data, start)
        return allowed, self._begin(data, start, size, length, swallow=not allowed)

    def _first(self, verb: bytes, options: bytes) -> bytes:
        if verb != b"CONNECT":
            raise ProtocolViolation(UNKNOWN)
        line = self._handler.connect(options)
        self._connected = True
        self.max_line = MAX_CLIENT_LINE
        return line

    def _other(self, verb: bytes, fields: list[bytes]) -> bool:
        count = len(fields)
        if verb == b"SUB" and count in {3, 4}:
            sid = fields[-1]
            if sid.isdigit() and len(sid) <= MAX_SID and fields[1]:
                return self._handler.subscribe(fields[1], fields[2] if count == 4 else b"", sid)
        elif verb == b"UNSUB" and count in {2, 3}:
            sid = fields[1]
            if sid.isdigit() and len(sid) <= MAX_SID:
                most = number(fields[2]) if count == 3 and fields[2] else 0
                return self._handler.unsubscribe(sid, most)
        elif verb in _BARE and count == 1:
            return True
        raise ProtocolViolation(UNKNOWN)


_BARE = frozenset({b"PING", b"PONG"})
