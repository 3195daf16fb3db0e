"""What both directions of a NATS connection share: control lines, and bodies that are passed on unread. Pure.

A piece that holds nothing but allowed, whole frames is passed on as the object that came in. A control line waits
until it is whole; a body does not, once its line was allowed.

The library's parser (`postroom_a2a.nats.parser`) does another thing: it takes a server's stream apart into messages.
The gateway also reads what a client sends, which may be written to smuggle a command past it: nats-server takes any
case, tabs and runs of spaces. So each line has one spelling here and is judged by its sender's rights, and what was
allowed is passed on as it came, whole pieces at a time and without a copy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from postroom.errors import ProtocolViolation

Piece = bytes | memoryview
"""Bytes to pass on."""

UNKNOWN = "Unknown Protocol Operation"
TOO_LARGE = "Maximum Payload Violation"
TOO_LONG = "Maximum Control Line Exceeded"

HELD = 4096
"""Bytes of a frame, or of its header block, that are waited for so that they can be looked at."""

COMMON = rb"([!#-)+-=?-\[\]-~]{0,511}[!#-)+\-/-=?-\[\]-~])"
"""A subject, as an expression with one group, that needs no second look: no wildcard, no dot at its end, nothing that
JSON would escape."""

END = b"\r\n"


class Stream:
    """One direction, cut into pieces anywhere. Subclasses read the lines.

    Attributes:
        broken: why nothing more is read, in the words of a NATS server; "" while all is well.
        max_line: bytes of a control line.
        most: frames that one `feed` reads; what follows them is held.
        frames: that the last `feed` has read.
        more: it has stopped there: feed on, if only b"".
    """

    most = sys.maxsize

    def __init__(self, max_line: int) -> None:
        self.broken = ""
        self.max_line = max_line
        self.frames = 0
        self.more = False
        self._held = b""
        self._left = 0
        self._swallow = False

    @property
    def within(self) -> bool:
        """Whether what was passed on last ended inside a message, so that nothing may be put in."""
        return self._left > 0 and not self._swallow

    @property
    def ahead(self) -> int:
        """Bytes of a body that are to come."""
        return self._left

    def feed(self, data: bytes) -> Sequence[Piece]:
        """Read the next piece; what of it, and of what was held, is to be passed on now."""
        self.frames, self.more = 0, False
        if self.broken:
            return ()
        if self._held:
            data = self._held + data  # mostly at most a control line and a small header block
            self._held = b""
        pieces: list[Piece] = []
        try:
            begin, position = self._read(data, pieces)
        except ProtocolViolation as error:
            self.broken = error.message
            return pieces
        if begin == 0 and position == len(data):
            return (data,)
        if begin < position:
            pieces.append(memoryview(data)[begin:position])
        self._held = data[position:]
        return pieces

    def _read(self, data: bytes, pieces: list[Piece]) -> tuple[int, int]:
        """Read `data`; passed on are `pieces` and then what lies between the two positions, and the rest is held.

        What was passed on before an error is in `pieces`.

        Raises:
            ProtocolViolation: the stream cannot be read on; the message is for `broken`.
        """
        position = begin = 0
        find, length = data.find, len(data)
        try:
            if self._left:
                position = self._body(data, 0)
                if self._swallow:
                    begin = position
            while position < length:
                if self.frames >= self.most:
                    self.more = True
                    break
                position, following = self._run(data, position, length)
                if following:
                    if begin < position:
                        pieces.append(memoryview(data)[begin:position])
                    begin = position = following
                    continue
                if position == length:
                    break
                if self.frames >= self.most:
                    continue
                end = find(END, position, position + self.max_line)
                if end < 0:
                    if length - position >= self.max_line:
                        raise ProtocolViolation(TOO_LONG)
                    break
                frame = self._line(data, position, end, length)
                if frame is None:  # part of it is waited for
                    break
                self.frames += 1
                verdict, following = frame
                if verdict is not True:
                    if begin < position:
                        pieces.append(memoryview(data)[begin:position])
                    if verdict:
                        pieces.append(verdict)
                    begin = following
                position = following
        except ProtocolViolation:
            if begin < position:
                pieces.append(memoryview(data)[begin:position])
            raise
        return begin, position

    def _run(self, data: bytes, position: int, length: int) -> tuple[int, int]:  # noqa: ARG002 (for subclasses)
        """Read whole messages of the common form, as many as there are: what `_line` would say of them, in less time.

        Returns:
            Where the first frame begins that `_line` has to read, and 0; or where one begins that is not to be passed
            on, and where the next one does.
        """
        return position, 0

    def _line(
        self, data: bytes, position: int, end: int, length: int
    ) -> tuple[bool | bytes, int] | None:
        """Read the line from `position` to `end` and begin with its body.

        Returns:
            Whether to pass the frame on, or what to pass on in its place, and where the next one begins in `data`;
            None to wait for more.
        """
        raise NotImplementedError

    def _complete(self, data: bytes, start: int, size: int, header: int, length: int) -> bool:
        """Whether as much of a body that begins at `start` is there as has to be; checks the end of a whole one."""
        stop = start + size
        if stop + 2 <= length:
            if data[stop : stop + 2] != END:
                raise ProtocolViolation(UNKNOWN)
            return True
        wanted = size + 2 if size <= HELD else header if header <= HELD else 0
        return start + wanted <= length

    def _begin(self, data: bytes, start: int, size: int, length: int, *, swallow: bool) -> int:
        """Go over a body of `size` bytes and its end; where the next frame begins, or `data` ends."""
        following = start + size + 2
        if following <= length:
            return following
        self._left, self._swallow = size + 2, swallow
        return self._body(data, start)

    def _body(self, data: bytes, position: int) -> int:
        left = self._left
        taken = min(left, len(data) - position)
        rest = left - taken
        if rest < 2:
            last = position + max(left - 2, 0)
            if data[last : position + taken] != END[2 - min(left, 2) : 2 - rest]:
                raise ProtocolViolation(UNKNOWN)
        self._left = rest
        return position + taken


def number(digits: bytes) -> int:
    """A length in its one spelling: digits without leading zeros."""
    if not digits.isdigit() or len(digits) > 9 or (digits[0] == 48 and len(digits) > 1):
        raise ProtocolViolation(UNKNOWN)
    return int(digits)
