"""A terminal in a worker's sandbox: the frames between its sidecar and the control plane. Pure.

A person opens one at the control plane, which tells the sidecar by an event (`EventKind.TERMINAL`, `opened`). The
sidecar dials out: what the shell prints goes up as the body of one request, what the person types comes down as the
body of one answer. Both bodies are frames: a byte that says the kind, the length of the rest in four bytes, the rest.

    DATA    bytes for the other side's terminal
    RESIZE  down only: columns and rows, two bytes each
    END     up: the shell's exit status in four bytes; down: the person has gone
    BEAT    nothing: the connection lives
    FAILED  up, instead of END: why there is no shell, or no more, as text
"""

from __future__ import annotations

import struct
from enum import IntEnum

from postroom.errors import InvalidInput, ProtocolViolation
from postroom_a2a.text import one_line

MAX_PIECE = 32 * 1024
"""Bytes of a frame's rest."""

BEAT_EVERY = 10.0
"""Seconds after which a side that has nothing to say sends a beat."""

SILENCE = 3 * BEAT_EVERY
"""Seconds without a frame after which the other side has gone."""

MOST_REASON = 200
"""Characters of a reason."""

MAX_SIDE = 1000
"""Most columns, and most rows."""

_HEAD = struct.Struct("!BI")
_SIZE = struct.Struct("!HH")
_STATUS = struct.Struct("!i")


class FrameKind(IntEnum):
    """What a frame is."""

    DATA = 0
    RESIZE = 1
    END = 2
    BEAT = 3
    FAILED = 4


Frame = tuple[FrameKind, bytes]


def frame(kind: FrameKind, rest: bytes = b"") -> bytes:
    """A frame as bytes; its rest has at most `MAX_PIECE` bytes."""
    return _HEAD.pack(kind, len(rest)) + rest


def resize(columns: int, rows: int) -> bytes:
    """The frame for a new size."""
    return frame(FrameKind.RESIZE, _SIZE.pack(columns, rows))


def size_in(rest: bytes) -> tuple[int, int]:
    """Columns and rows in a RESIZE frame; raises ProtocolViolation."""
    try:
        columns, rows = _SIZE.unpack(rest)
    except struct.error as error:
        raise ProtocolViolation("a frame with a size has four bytes") from error
    return check_size(columns, rows)


def check_size(columns: int, rows: int) -> tuple[int, int]:
    """A size that a terminal may have; raises InvalidInput."""
    if not (1 <= columns <= MAX_SIDE and 1 <= rows <= MAX_SIDE):
        raise InvalidInput(f"a terminal has 1 to {MAX_SIDE} columns and rows")
    return columns, rows


def end(status: int = 0) -> bytes:
    """The last frame, with the shell's exit status."""
    return frame(FrameKind.END, _STATUS.pack(status))


def failed(reason: str) -> bytes:
    """The last frame where the terminal is broken."""
    return frame(FrameKind.FAILED, one_line(reason, MOST_REASON).encode())


def reason_in(rest: bytes) -> str:
    """The reason in a FAILED frame, fit to be shown: whoever has made it is not trusted."""
    return one_line(rest.decode("utf-8", "replace"), MOST_REASON)


def status_in(rest: bytes) -> int:
    """The exit status in an END frame; raises ProtocolViolation."""
    try:
        return _STATUS.unpack(rest)[0]
    except struct.error as error:
        raise ProtocolViolation("the last frame has an exit status") from error


class FrameReader:
    """Cuts a body into frames, however it is cut into pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes.

        Raises:
            ProtocolViolation: a frame is of no known kind, or too long.
        """
        self._rest += data
        found: list[Frame] = []
        while len(self._rest) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._rest)
            if length > MAX_PIECE or kind > max(FrameKind):
                raise ProtocolViolation("that is no frame of a terminal")
            whole = _HEAD.size + length
            if len(self._rest) < whole:
                break
            found.append((FrameKind(kind), bytes(self._rest[_HEAD.size : whole])))
            del self._rest[:whole]
        return found
