"""One direction of a NATS connection: control lines, and bodies that pass unread. Pure.

A piece of nothing but allowed, whole frames passes as the object that came in. A control line waits until it is whole;
a body does not, once its line was allowed.

The library's parser (`postroom_a2a.nats.parser`) takes a server's stream apart into messages. The gateway also reads a
client, which may try to smuggle a command past it: nats-server takes any case, tabs and runs of spaces. So here each
line has one spelling, the sender's rights decide about it, and allowed bytes pass unchanged and without a copy.
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
"""Bytes of a frame, or of its header block, that wait until they can be checked."""

COMMON = rb"([!#-)+-=?-\[\]-~]{0,511}[!#-)+\-/-=?-\[\]-~])"
"""An expression with one group for a subject that needs no second look: no wildcard, no dot at its end, nothing that
JSON would escape.
"""

END = b"\r\n"


class Stream:
    """One direction, in pieces cut anywhere. Subclasses read the lines.

    Attributes:
        broken: why nothing more is read, in a NATS server's words; "" while all is well.
        max_line: bytes of a control line.
        most: frames that one `feed` reads; the rest waits.
        frames: number that the last `feed` has read.
        more: `feed` stopped at `most`: call it again, if only with b"".
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
        """Whether the bytes passed on so far end inside a message, so that nothing may be put in."""
        return self._left > 0 and not self._swallow

    @property
    def ahead(self) -> int:
        """Bytes of a body that are still to come."""
        return self._left

    def feed(self, data: bytes) -> Sequence[Piece]:
        """Read the next piece; return what may pass now, of it and of what waited."""
        self.frames, self.more = 0, False
        if self.broken:
            return ()
        if self._held:
            data = self._held + data  # rarely more than a control line and a small header block
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
        """Read `data`: `pieces` pass, then the bytes between the two positions returned; the rest waits.

        Before an error, `pieces` holds what passed.

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
                if frame is None:  # the rest of it has not come
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
        """Read as many whole messages of the common form as there are: same result as `_line`, in less time.

        Returns:
            Where the first frame begins that `_line` has to read, and 0; or where one begins that must not pass,
            and where the next one does.
        """
        return position, 0

    def _line(
        self, data: bytes, position: int, end: int, length: int
    ) -> tuple[bool | bytes, int] | None:
        """Read the line from `position` to `end` and begin with its body.

        Returns:
            Whether the frame passes, or what passes in its place, and where the next one begins in `data`;
            None to wait for more.
        """
        raise NotImplementedError

    def _complete(self, data: bytes, start: int, size: int, header: int, length: int) -> bool:
        """Whether enough of a body that begins at `start` has come; checks the end of a whole one."""
        stop = start + size
        if stop + 2 <= length:
            if data[stop : stop + 2] != END:
                raise ProtocolViolation(UNKNOWN)
            return True
        wanted = size + 2 if size <= HELD else header if header <= HELD else 0
        return start + wanted <= length

    def _begin(self, data: bytes, start: int, size: int, length: int, *, swallow: bool) -> int:
        """Skip a body of `size` bytes and its end; return where the next frame begins, or `data` ends."""
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
