"""Reads the audit log back: whole lines from a position on, over closed files and the current one.

All functions block, so they are called in threads. A line that a kill left torn is passed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from postroom.audit.files import Files
from postroom.audit.query import Match

CHUNK = 256 * 1024
"""Bytes that are read at a time; a longer run without a line break is not a record."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in the log: behind `offset` bytes of the file `file`."""

    file: int = 0
    offset: int = 0


def read_lines(
    files: Files, start: Position, end: Position, size: int = CHUNK
) -> tuple[list[bytes], Position]:
    """Read whole lines between two positions, at most `size` bytes; returns them without breaks, and their end.

    The log has no more when no line comes and the returned position is `start`.
    """
    if start.file > end.file:
        return [], Position()  # the closed files were removed, so numbers begin anew
    file = files.open(start.file)
    if file is None:
        return [], _next_file(files, start, end)
    last = start.file == end.file
    if last and start.offset > end.offset:
        return [], Position(start.file)  # the file was removed, and begun anew
    with file:
        file.seek(start.offset)
        data = file.read(max(0, min(size, end.offset - start.offset)) if last else size)
    cut = data.rfind(b"\n") + 1
    if cut:
        lines = [line for line in data[:cut].split(b"\n") if line]
        return lines, Position(start.file, start.offset + cut)
    if len(data) == size:
        return [], Position(start.file, start.offset + size)
    return [], start if last else _next_file(files, start, end)


def _next_file(files: Files, start: Position, end: Position) -> Position:
    later = [number for number in files.closed() if start.file < number <= end.file]
    return Position(later[0] if later else end.file)


def all_lines(files: Files, end: Position, start: Position = Position()) -> Iterator[bytes]:
    """Every line up to `end`, oldest first."""
    while True:
        lines, position = read_lines(files, start, end)
        yield from lines
        if position == start:
            return
        start = position


def newest(
    files: Files,
    end: Position,
    limit: int,
    match: Callable[[bytes], Match],
    worth: Callable[[int], bool] = lambda _: True,
) -> tuple[list[bytes], int]:
    """The last `limit` wanted lines before `end`, oldest first, and how many among and after them are left out.

    Args:
        worth: whether a closed file can have wanted lines; if not, neither can older ones.
    """
    found: deque[bytes] = deque()
    omitted = 0
    for number in (end.file, *(n for n in reversed(files.closed()) if n < end.file)):
        if number < end.file and not worth(number):
            break
        stop = end if number == end.file else Position(number + 1)
        mine: deque[tuple[bytes, int]] = deque(maxlen=limit - len(found))
        passed = 0
        for line in all_lines(files, stop, Position(number)):
            what = match(line)
            if what is Match.WANTED:
                mine.append((line, passed))
            passed += what is Match.OMITTED
        found.extendleft(line for line, _ in reversed(mine))
        if len(found) >= limit:
            return list(found), omitted + passed - mine[0][1]
        omitted += passed
    return list(found), omitted
