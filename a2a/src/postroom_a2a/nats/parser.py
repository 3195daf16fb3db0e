"""A parser of a NATS server's byte stream. Pure: bytes in, calls out.

It accepts one spelling: verbs in capitals, digits only, CR LF at the end. A subject may hold any byte but space, tab,
CR and LF. The server writes one space between fields, and two where it leaves out the reply subject.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from postroom_a2a.bounds import MAX_PAYLOAD, MAX_SERVER_LINE
from postroom_a2a.errors import ProtocolViolation

_DIGITS = 9

OnMessage = Callable[[bytes, bytes, bytes, bytes, bytes], None]
"""Called with sid, subject, reply, header block and payload."""

OnControl = Callable[[bytes, bytes], None]
"""Called with the verb (`INFO`, `PING`, `PONG`, `+OK`, `-ERR`) and the rest of the line."""


class Parser:
    """Parses a stream that may be cut into pieces anywhere.

    `feed` raises what the two functions raise, and the rest of its piece is lost.

    Args:
        message: takes messages; the attribute may be set to another function between two pieces.
        control: takes everything else.
    """

    def __init__(self, message: OnMessage, control: OnControl) -> None:
        self.message = message
        self._control = control
        self._pieces: list[bytes] = []
        self._have = 0
        self._need = 0

    @property
    def pending(self) -> int:
        """Bytes of an incomplete line or message."""
        return self._have

    def feed(self, data: bytes) -> int:
        """Parse the next piece, and return how many messages ended in it.

        After a `ProtocolViolation` nothing more can be read from the stream.
        """
        if self._have:
            self._pieces.append(data)
            self._have += len(data)
            if self._have < self._need:  # joins the pieces of a large message only once
                return 0
            data = b"".join(self._pieces)
            self._pieces.clear()
            self._have = self._need = 0
        message, find, length = self.message, data.find, len(data)
        position = count = 0
        while position < length:
            end = find(b"\r\n", position, position + MAX_SERVER_LINE)
            if end < 0:
                if length - position >= MAX_SERVER_LINE:
                    raise ProtocolViolation("the server sent a line without an end")
                break
            start = end + 2
            fields = data[position:end].split(b" ")
            verb = fields[0]
            if verb == b"MSG":
                head = 0
                if len(fields) == 5:
                    _, subject, sid, reply, digits = fields
                elif len(fields) == 4:
                    _, subject, sid, digits = fields
                    reply = b""
                else:
                    _refuse(data[position:end])
            elif verb == b"HMSG":
                if len(fields) == 6:
                    _, subject, sid, reply, first, digits = fields
                elif len(fields) == 5:
                    _, subject, sid, first, digits = fields
                    reply = b""
                else:
                    _refuse(data[position:end])
                if not first.isdigit() or len(first) > _DIGITS:
                    _refuse(data[position:end])
                head = int(first)
            else:
                begin = position + len(verb)
                position = start
                self._other(verb, data[begin:end])
                continue
            if not digits.isdigit() or len(digits) > _DIGITS:
                _refuse(data[position:end])
            size = int(digits)
            stop = start + size
            if size > MAX_PAYLOAD or head > size or not subject or not sid.isdigit():
                _refuse(data[position:end])
            if stop + 2 > length:
                self._need = stop + 2 - position
                break
            if data[stop : stop + 2] != b"\r\n":
                raise ProtocolViolation("the server sent a message that does not end where it says")
            position = stop + 2
            count += 1
            if head:
                message(sid, subject, reply, data[start : start + head], data[start + head : stop])
            else:
                message(sid, subject, reply, b"", data[start:stop])
        if position < length:
            rest = data[position:] if position else data
            self._pieces.append(rest)
            self._have = len(rest)
        return count

    def _other(self, verb: bytes, rest: bytes) -> None:
        if verb not in _WITH_TEXT and (verb not in _BARE or rest):
            _refuse(verb + rest)
        self._control(verb, rest.strip())


_BARE = frozenset({b"PING", b"PONG", b"+OK"})
_WITH_TEXT = frozenset({b"INFO", b"-ERR"})


def _refuse(line: bytes) -> NoReturn:
    raise ProtocolViolation(
        f"the server sent a line that is not of the NATS protocol: {line[:80]!r}"
    )
