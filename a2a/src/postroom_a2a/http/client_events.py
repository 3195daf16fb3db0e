"""Server-sent events as they come: pieces of bytes in, events out (WHATWG HTML, section 9.2). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from postroom_a2a.errors import ProtocolViolation

_END = re.compile(rb"[\r\n]")
_NOISE = re.compile(rb"(?:[\r\n]|:[^\r\n]*[\r\n])*")
"""Ends of lines and comments, where no event has begun."""


FRUITLESS = 100_000
"""Lines after which a stream without an event is given up; comments that stand alone do not count."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """An event; `id` is that of the last event that had one."""

    data: str
    kind: str = "message"
    id: str = ""


class EventReader:
    """Reads the events of one stream.

    Args:
        most: bytes of one event.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._rest = bytearray()
        self._seen = 0
        self._data: list[str] = []
        self._size = 0
        self._kind = ""
        self._id = ""
        self._begun = False
        self._skip_feed = False
        self._fruitless = 0

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """The events that `piece` completes.

        Raises:
            ProtocolViolation: an event is too long, or not UTF-8; or many lines are no event.
        """
        self._rest += piece
        for line in self._lines():
            if (event := self._line(line)) is not None:
                yield event
        if self._size + len(self._rest) > self._most:
            raise ProtocolViolation(f"an event of the stream is over {self._most} bytes")

    def _lines(self) -> Iterator[bytes]:
        """The whole lines; a stream of ends and comments costs no more than one search."""
        rest, at = self._rest, 0
        try:
            while True:
                if (
                    self._skip_feed and rest[at : at + 1] == b"\n"
                ):  # the second half of an end that was cut
                    at += 1
                    self._seen = max(self._seen, at)
                if at < len(rest):
                    self._skip_feed = False
                if self._begun and not self._data and not self._size:
                    noise = _NOISE.match(rest, at)
                    if noise is not None and noise.end() > at:
                        at = self._seen = noise.end()
                        self._skip_feed = rest[at - 1 : at] == b"\r"
                        continue
                end = _END.search(rest, max(self._seen, at))
                if end is None:
                    self._seen = len(rest)
                    return
                line = bytes(rest[at : end.start()])
                self._skip_feed = end[0] == b"\r"
                at = self._seen = end.end()
                yield line
        finally:
            del rest[:at]
            self._seen = max(0, self._seen - at)

    def _line(self, line: bytes) -> ServerEvent | None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(b"\xef\xbb\xbf")
        self._fruitless += 1
        if self._fruitless > FRUITLESS and not self._data:
            raise ProtocolViolation(f"the stream has {FRUITLESS} lines without an event")
        if not line:
            return self._ended()
        if line.startswith(b":"):
            return None
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        self._size += len(value) + 1
        if self._size > self._most:
            raise ProtocolViolation(f"an event of the stream is over {self._most} bytes")
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            raise ProtocolViolation("an event of the stream is not UTF-8") from error
        if name == b"data":
            self._data.append(text)
        elif name == b"event":
            self._kind = text
        elif name == b"id" and "\0" not in text:
            self._id = text
        return None

    def _ended(self) -> ServerEvent | None:
        data, kind = self._data, self._kind
        self._data, self._kind, self._size = [], "", 0
        if not data:
            return None
        self._fruitless = 0
        return ServerEvent("\n".join(data), kind or "message", self._id)
