"""Reads the audit log back: whole lines from a position on, over closed files and the current one, that fit a query.

The log is written to `audit.jsonl`. A full file becomes `audit-0000000001.jsonl`, and a new one takes its name. The
number of the current file is the one that it will get then. How far a reader has read is kept over restarts (`Cursor`).
All functions block, so they are called in threads. A line that a kill left torn is passed over.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import BinaryIO

from postroom.disk import sync
from postroom.errors import InvalidInput, PostroomError, StateUnwritable
from postroom.identity.privatefile import write_private
from postroom.protocol.audit import DENIED, AuditRecord
from postroom_a2a.times import format_time, parse_time

CHUNK = 256 * 1024
"""Bytes that are read at a time; a longer run without a line break is not a record."""

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_ATTEMPTS = 5

_SPAN = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Only the field itself matches: a quote within a JSON text is written with a backslash.
_AT = re.compile(rb'"at":\s*"([0-9TZ:.-]*)"')
_ORG = re.compile(rb'"org":\s*"([^"\\]*)"')


class Files:
    """Names, opens and rotates the files of the log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next = path.with_name(f"{path.name}.next")
        self._pattern = re.compile(rf"{re.escape(path.stem)}-(\d{{10}}){re.escape(path.suffix)}")

    def closed_path(self, number: int) -> Path:
        """The path of file `number` once it is closed."""
        return self.path.with_name(f"{self.path.stem}-{number:010}{self.path.suffix}")

    def closed(self) -> list[int]:
        """Numbers of the closed files, oldest first."""
        try:
            names = os.listdir(self.path.parent)  # noqa: PTH208 (no Path for each is needed)
        except FileNotFoundError:
            return []
        found = (self._pattern.fullmatch(name) for name in names)
        return sorted(int(match[1]) for match in found if match)

    def number(self) -> int:
        """Number of the current file."""
        closed = self.closed()
        return closed[-1] + 1 if closed else 1

    def append(self) -> int:
        """Open the current file for appending, and make it where it is missing; returns the descriptor."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._next.unlink(missing_ok=True)  # left by a rotation that was cut short
        return os.open(self.path, _FLAGS, 0o600)

    def rotate(self, number: int) -> int:
        """Close the current file as `number` and begin a new one; returns the descriptor of the new one.

        A kill at any moment leaves either the old file under its name, or the closed one and no current one.

        Raises:
            OSError: nothing was changed.
        """
        descriptor = os.open(self._next, _FLAGS | os.O_TRUNC, 0o600)
        try:
            self.path.rename(self.closed_path(number))
            try:
                self._next.rename(self.path)
            except OSError:
                self.closed_path(number).rename(self.path)
                raise
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def open(self, number: int) -> BinaryIO | None:
        """Open file `number` for reading; None if it was deleted or never existed."""
        for _ in range(_ATTEMPTS):
            try:
                return self.closed_path(number).open("rb")
            except FileNotFoundError:
                if number != self.number():
                    return None
            try:
                file = self.path.open("rb")
            except FileNotFoundError:
                continue  # in the midst of a rotation
            if not self.closed_path(number).exists():
                return file
            file.close()  # rotated just now: this may be the next one
        return None

    def sync_folder(self) -> None:
        """Bring the names of the files to the disk."""
        sync(self.path.parent)


class Cursor:
    """Named numbers in one small file, replaced whole; a missing or damaged file counts as nothing read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[str, int]:
        """Read what was saved last."""
        try:
            document = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        if not isinstance(document, dict):
            return {}
        return {key: at for key, at in document.items() if type(at) is int and at >= 0}

    def save(self, numbers: Mapping[str, int]) -> None:
        """Replace what was saved."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StateUnwritable(f"cannot write {self._path}: {error.strerror}") from error
        write_private(self._path, json.dumps(dict(numbers)).encode())


class Match(Enum):
    """How a line stands to a query: wanted, left out as plumbing, or about something else."""

    WANTED = "wanted"
    OMITTED = "omitted"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Query:
    """Which records a reader wants; an empty field does not narrow.

    Attributes:
        org: the records are this organisation's, or about the log itself.
        task: id; the records are about it, or caused by it.
        since: a time as records have it (`parse_since`); so written, times compare as texts.
        plumbing: include frames that only keep a connection alive.
    """

    org: str
    worker: str = ""
    task: str = ""
    since: str = ""
    denied: bool = False
    plumbing: bool = True

    def match(self, line: bytes) -> Match:
        """How `line` stands to this query."""
        record = self._record(line)
        if record is None:
            return Match.OTHER
        return Match.OMITTED if record.plumbing and not self.plumbing else Match.WANTED

    def _record(self, line: bytes) -> AuditRecord | None:
        for word in (self.worker, self.task, DENIED if self.denied else ""):
            if word and word.encode() not in line:  # cheaper than to decode it
                return None
        if self.since and _at(line) < self.since:
            return None
        try:
            record = AuditRecord.decode(line)
        except InvalidInput:
            return None
        wanted = (
            record.org in ("", self.org)
            and self.worker in ("", record.worker, record.principal)
            and (not self.task or self.task in (record.task, record.cause_task))
            and (not self.denied or record.verdict == DENIED)
        )
        return record if wanted else None


def _at(line: bytes) -> str:
    found = _AT.search(line)
    return found[1].decode() if found else ""


def org_of(line: bytes) -> str:
    """The organisation in `line`, "" for none."""
    found = _ORG.search(line)
    return found[1].decode("utf-8", "replace") if found else ""


def parse_since(text: str, now: float) -> str:
    """The time, as records have it, for `10m`, `2h` or `3d` before `now`, or for an RFC 3339 time."""
    span = _SPAN.fullmatch(text)
    if span:
        return format_time(max(0.0, now - int(span[1]) * _SECONDS[span[2]]))
    try:
        return format_time(parse_time(text))
    except PostroomError as error:
        raise InvalidInput(
            f"{text[:40]!r} is not a time", remedy=f"10m, 2h, 3d, or like {format_time(now)}"
        ) from error


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
