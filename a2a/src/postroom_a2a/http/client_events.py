"""Server-sent events as they come: pieces of bytes in, events out (WHATWG HTML, section 9.2). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from postroom_a2a.errors import ProtocolViolation


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

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """The events that `piece` completes.

        Raises:
            ProtocolViolation: an event is too long, or not UTF-8.
        """
        self._rest += piece
        for line in self._lines():
            if (event := self._line(line)) is not None:
                yield event
        if self._size + len(self._rest) > self._most:
            raise ProtocolViolation(f"an event of the stream is over {self._most} bytes")

    def _lines(self) -> Iterator[bytes]:
        rest = self._rest
        while True:
            if self._skip_feed and rest[:1] == b"\n":  # the second half of an end that was cut
                del rest[:1]
            if rest:
                self._skip_feed = False
            at = min(
                (found for end in (b"\n", b"\r") if (found := rest.find(end, self._seen)) >= 0),
                default=-1,
            )
            if at < 0:
                self._seen = len(rest)
                return
            line = bytes(rest[:at])
            self._skip_feed = rest[at : at + 1] == b"\r"
            del rest[: at + 1]
            self._seen = 0
            yield line

    def _line(self, line: bytes) -> ServerEvent | None:
        if not self._begun:
            self._begun = True
            line = line.removeprefix(b"\xef\xbb\xbf")
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
        return ServerEvent("\n".join(data), kind or "message", self._id)
