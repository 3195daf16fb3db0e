"""Events that the control plane has not taken yet, on disk: they survive a SIGKILL of the sidecar and of all else.

One folder with segments, files that only grow, of one event a line. A segment's name says when it was begun, the run of
the sidecar and the number of its first event, so each line has its number. Nothing is synced: after a power cut the
last events may be missing. What is torn at a segment's end was never posted.

The spool has a bound. Beyond it, texts, thoughts and unread lines are left out first, and the output of tools; then all
but what people decide by, and what counts: `KEPT`. How many were left out is an event of its own.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroom.errors import StateUnwritable
from postroom.protocol.event_bounds import encoded
from postroom.protocol.events import EventKind
from postroom.protocol.limits import MAX_EVENTS, MAX_EVENTS_BYTES

MOST = 64 * 1024 * 1024
"""Bytes of events that wait."""

SEGMENT = 256 * 1024
"""Bytes of a segment; its first batch may be posted again after a SIGKILL."""

BATCH = MAX_EVENTS_BYTES - 4096
"""Bytes of a batch's events; the rest is for what is around them."""

WAITING = 1000
"""Events of `KEPT` that wait in memory while the disk takes nothing."""

LOOSE = frozenset({EventKind.TEXT, EventKind.THINKING, EventKind.RAW})
"""What is left out first."""

KEPT = frozenset(
    {EventKind.CONTROL_REQUEST, EventKind.CONTROL_RESPONSE, EventKind.USAGE, EventKind.RESULT}
)
"""What is never left out for want of room."""

_NAME = re.compile(r"(?P<at>\d{14})-(?P<run>[0-9a-f]{1,64})-(?P<first>\d{1,16})\.jsonl")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that follow one another in one run, as lines of JSON."""

    run: str
    first: int
    lines: tuple[bytes, ...]


@dataclass(slots=True)
class _Segment:
    path: Path
    run: str
    number: int
    size: int
    offset: int = 0

    @property
    def left(self) -> int:
        return self.size - self.offset


class Spool:
    """The events of one worker.

    Args:
        folder: made if it is missing; what earlier runs left there is posted first.
        run: numbers the events of this run, in hexadecimal digits.
        most: bytes that may wait.

    Raises:
        StateUnwritable: the folder cannot be made.
    """

    def __init__(self, folder: Path, run: str, *, most: int = MOST) -> None:
        self._folder = folder
        self._run = run
        self._most = most
        self._next = 1
        self._file = -1
        self._left_out: Counter[str] = Counter()
        self._unwritten: deque[bytes] = deque(maxlen=WAITING)
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            self._segments = deque(_found(folder))
        except OSError as error:
            raise StateUnwritable(f"the events' folder cannot be used: {error.strerror}") from error

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return sum(segment.left for segment in self._segments)

    def __bool__(self) -> bool:
        return any(segment.left for segment in self._segments)

    def append(self, event: Mapping[str, Any]) -> None:
        """Take an event; never fails."""
        kind = str(event.get("type"))
        fitting = self._fitting(kind, event)
        if fitting is None:
            self._left_out[kind] += 1
            return
        if self._left_out:
            self._write(_line(self._note()), must=False)
        self._write(_line(fitting), must=kind in KEPT)

    def batch(self) -> Batch | None:
        """The oldest events that wait; None if there are none. Gives the same until `taken`."""
        while self._segments:
            segment = self._segments[0]
            lines = self._lines(segment) if segment.left else ()
            if lines:
                return Batch(segment.run, segment.number, lines)
            if self._is_current(segment):
                return None
            self._drop()
        return None

    def taken(self, batch: Batch, following: int) -> None:
        """The control plane has all before the number `following`, which may be far behind the batch: after a SIGKILL
        the first answer says how far the run before it was taken.
        """
        lines = batch.lines
        while lines and self._segments and self._segments[0].run == batch.run:
            segment = self._segments[0]
            count = min(max(following - segment.number, 0), len(lines))
            segment.number += count
            segment.offset += sum(len(line) + 1 for line in lines[:count])
            if not segment.left and not self._is_current(segment):
                self._drop()
            if following <= segment.number:
                return
            following_batch = self.batch()
            lines = following_batch.lines if following_batch else ()

    def close(self) -> None:
        """Close the file; an empty spool leaves none."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        while self._segments and not self._segments[0].left:
            self._drop()

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────

    def _fitting(self, kind: str, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What is written of an event, as full as the spool is; None for nothing."""
        size = self.size
        if size < self._most or kind in KEPT:
            return event
        if kind == EventKind.TOOL_RESULT and size < self._most * 5 // 4:
            return {**event, "output": "", "raw": "", "cut": True}
        return None if kind in LOOSE or size >= self._most * 5 // 4 else event

    def _note(self) -> dict[str, Any]:
        left_out, self._left_out = dict(self._left_out), Counter()
        count = sum(left_out.values())
        text = f"{count} events were left out: the post room has not taken them for too long"
        return {"type": EventKind.ERROR.value, "text": text, "code": "left-out", "count": left_out}

    def _write(self, line: bytes, *, must: bool) -> None:
        try:
            while self._unwritten:
                self._put(self._unwritten[0])
                self._unwritten.popleft()
            self._put(line)
        except OSError:
            if must:
                self._unwritten.append(line)
            else:
                self._left_out["unwritten"] += 1

    def _put(self, line: bytes) -> None:
        if self._file < 0 or self._segments[-1].size >= SEGMENT:
            self._begin()
        segment, data = self._segments[-1], line + b"\n"
        written = os.write(self._file, data)
        if written != len(data):  # the disk is full: what is torn ends the segment
            self._end_segment()
            raise OSError
        segment.size += written
        self._next += 1

    def _begin(self) -> None:
        self._end_segment()
        at = time.time_ns() // 1_000_000
        path = self._folder / f"{at:014}-{self._run}-{self._next}.jsonl"
        self._file = os.open(path, _MAKE, 0o600)
        self._segments.append(_Segment(path, self._run, self._next, 0))

    def _end_segment(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _is_current(self, segment: _Segment) -> bool:
        return self._file >= 0 and segment is self._segments[-1]

    def _drop(self) -> None:
        self._segments.popleft().path.unlink(missing_ok=True)

    @staticmethod
    def _lines(segment: _Segment) -> tuple[bytes, ...]:
        """The next whole lines of a segment."""
        try:
            file = os.open(segment.path, _READ)
        except OSError:
            segment.offset = segment.size  # somebody has removed it
            return ()
        try:
            data = os.pread(file, min(BATCH, segment.left), segment.offset)
        finally:
            os.close(file)
        whole, end, _ = data.rpartition(b"\n")
        if not end:
            segment.offset = segment.size  # torn
            return ()
        return tuple(whole.split(b"\n")[:MAX_EVENTS])


def _found(folder: Path) -> list[_Segment]:
    """The segments of earlier runs, oldest first."""
    found = []
    for path in sorted(folder.iterdir()):
        named = _NAME.fullmatch(path.name)
        if named and path.is_file() and not path.is_symlink():
            size = path.stat().st_size
            found.append(_Segment(path, named["run"], int(named["first"]), size))
    return found


def _line(event: Mapping[str, Any]) -> bytes:
    try:
        # A line separator within JSON is escaped, so a line is an event.
        return encoded(event).replace(b"\n", b" ")
    except (ValueError, TypeError, RecursionError):
        kind = str(event.get("type"))
        text = "an event of the agent has no form in JSON"
        return encoded({"type": EventKind.ERROR.value, "text": text, "code": "no-json", "of": kind})
