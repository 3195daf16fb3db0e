"""The server's frames: INFO, MSG, HMSG, PING, PONG, +OK, -ERR. Pure.

The gateway trusts the server more than the client. But it passes on only what it can read, since it records it.
"""

from __future__ import annotations

import re
from typing import Protocol

from postroom.errors import ProtocolViolation
from postroom.gateway.nats.stream import COMMON, END, UNKNOWN, Stream, number
from postroom_a2a.bounds import MAX_PAYLOAD, MAX_SERVER_LINE

_MSG = re.compile(rb"MSG %b [0-9]{1,20}(?: %b)? (0|[1-9][0-9]{0,8})\r\n" % (COMMON, COMMON)).match
_HMSG = re.compile(
    rb"HMSG %b [0-9]{1,20}(?: %b)? ([1-9][0-9]{0,8}) ([1-9][0-9]{0,8})\r\n" % (COMMON, COMMON)
).match


class ServerHandler(Protocol):
    """Takes the server's frames."""

    def inform(self, info: bytes) -> bytes:
        """The line that replaces `INFO <info>`."""
        ...

    def message(
        self, subject: bytes, reply: bytes, header: int, size: int, data: bytes, start: int
    ) -> None:
        """MSG or (`header` is not 0) HMSG; the body begins at `start` of `data` and may reach beyond its end."""
        ...

    def error(self, text: bytes) -> None:
        """-ERR."""
        ...


class ServerStream(Stream):
    """The direction into the sandbox."""

    def __init__(self, handler: ServerHandler) -> None:
        super().__init__(MAX_SERVER_LINE)
        self._handler = handler

    def _run(self, data: bytes, position: int, length: int) -> tuple[int, int]:
        message, header = self._handler.message, 0
        while True:
            if found := _MSG(data, position):
                subject, reply, digits = found.groups(b"")
                header = 0
            elif found := _HMSG(data, position):
                subject, reply, first, digits = found.groups(b"")
                header = int(first)
            else:
                break
            start, size = found.end(), int(digits)
            following = start + size + 2
            if (
                following > length
                or data[following - 2 : following] != END
                or size > MAX_PAYLOAD
                or header > size
            ):
                break
            message(subject, reply, header, size, data, start)
            position = following
        return position, 0

    def _line(
        self, data: bytes, position: int, end: int, length: int
    ) -> tuple[bool | bytes, int] | None:
        fields = data[position:end].split(b" ")
        verb = fields[0]
        start, count = end + 2, len(fields)
        reply = b""
        if verb == b"MSG":
            header = 0
            if count == 5:
                _, subject, sid, reply, digits = fields
            elif count == 4:
                _, subject, sid, digits = fields
            else:
                raise ProtocolViolation(UNKNOWN)
        elif verb == b"HMSG":
            if count == 6:
                _, subject, sid, reply, first, digits = fields
            elif count == 5:
                _, subject, sid, first, digits = fields
            else:
                raise ProtocolViolation(UNKNOWN)
            header = _length(first)
        else:
            return self._other(verb, data[position + len(verb) : end]), start
        size = _length(digits)
        if header > size or size > MAX_PAYLOAD or not subject or not sid.isdigit():
            raise ProtocolViolation(UNKNOWN)
        if not self._complete(data, start, size, header, length):
            return None
        self._handler.message(subject, reply, header, size, data, start)
        return True, self._begin(data, start, size, length, swallow=False)

    def _other(self, verb: bytes, rest: bytes) -> bool | bytes:
        if verb == b"INFO" and rest:
            return self._handler.inform(rest[1:])
        if verb == b"-ERR" and rest:
            self._handler.error(rest[1:])
            return True
        if verb in _BARE and not rest:
            return True
        raise ProtocolViolation(UNKNOWN)


_BARE = frozenset({b"PING", b"PONG", b"+OK"})


def _length(digits: bytes) -> int:
    """A length in any spelling: the server passes a publisher's leading zeros on, and they do no harm."""
    return number(digits.lstrip(b"0") or digits[-1:])
