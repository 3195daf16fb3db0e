"""Lines out of a byte stream from a program that may send anything: pure, no I/O.

Readers with a line limit die of one long line (asyncio's is 64 KiB); this one reports it and goes on at the
next newline. Memory is bounded by the cap.
"""

from __future__ import annotations

from dataclasses import dataclass

from postroom.protocol.limits import MAX_LINE_BYTES

PREFIX = 200
"""Bytes of an over-long line that are kept to report it."""


@dataclass(frozen=True, slots=True)
class Overlong:
    """A line that was over the cap.

    Attributes:
        prefix: its beginning, for the log.
    """

    prefix: str


class LineReader:
    """Cuts a stream of bytes into lines; invalid UTF-8 becomes U+FFFD.

    Args:
        cap: longest line in bytes, without its newline.
    """

    def __init__(self, cap: int = MAX_LINE_BYTES) -> None:
        self._cap = cap
        self._buffer = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[str | Overlong]:
        """The lines that `data` completes, without their ends."""
        found: list[str | Overlong] = []
        *whole, rest = data.split(b"\n")
        for piece in whole:
            self._add(piece, found)
            if not self._skipping:
                found.append(_decode(bytes(self._buffer)))
            self._buffer.clear()
            self._skipping = False
        self._add(rest, found)
        return found

    def finish(self) -> list[str | Overlong]:
        """What is left at the end of the stream, as a last line."""
        rest, self._buffer = bytes(self._buffer), bytearray()
        return [_decode(rest)] if rest and not self._skipping else []

    def _add(self, piece: bytes, found: list[str | Overlong]) -> None:
        if self._skipping:
            return
        if len(self._buffer) + len(piece) > self._cap:
            # So much is here whatever pieces the line came in.
            prefix = (bytes(self._buffer) + piece)[: min(PREFIX, self._cap)]
            found.append(Overlong(_decode(prefix)))
            self._buffer.clear()
            self._skipping = True
        else:
            self._buffer += piece


def _decode(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", errors="replace")
