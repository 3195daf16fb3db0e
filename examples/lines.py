"""Reading and writing Postroom's lines. Copy it next to your program, and name it in the template's `files`.

A program that works looks now and then whether there is a new line (`Inbox.canceled`); no thread is needed for that.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections import deque
from typing import Any

Line = dict[str, Any]
"""A line as JSON; `type` says what it is."""

CHUNK = 65536


def say(**line: object) -> None:
    """Write one line to Postroom."""
    print(json.dumps(line), flush=True)


class Inbox:
    """The lines from Postroom.

    Attributes:
        stopping: Postroom has said `stop`: what is not done then comes again at the next start.
    """

    def __init__(self) -> None:
        # Not sys.stdin itself: lines in its buffer would be invisible to `select`.
        self._file = sys.stdin.fileno()
        self._part = b""
        self._lines: deque[Line] = deque()
        self._ended = False
        self.stopping = False

    @property
    def over(self) -> bool:
        """Whether there is no line and will be none."""
        return (self.stopping or self._ended) and not self._lines

    def next(self, timeout: float | None = None) -> Line | None:
        """Wait for the next line; None if it is over, or if none came in `timeout` seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while not (self._lines or self.over):
            left = None if end is None else max(0.0, end - time.monotonic())
            if not self._read(left):
                return None
        return self._lines.popleft() if self._lines else None

    def canceled(self, task: str) -> bool:
        """Whether a `cancel` of `task` has come, without waiting; other lines stay for `next`."""
        while self._read(0.0):
            pass
        for line in self._lines:
            if line["type"] == "cancel" and line["task"] == task:
                self._lines.remove(line)
                return True
        return False

    def _read(self, timeout: float | None) -> bool:
        """Take what is there after at most `timeout` seconds; False if it is nothing."""
        if self._ended or not select.select([self._file], [], [], timeout)[0]:
            return False
        data = os.read(self._file, CHUNK)
        self._ended = not data
        *whole, self._part = (self._part + data).split(b"\n")
        for raw in whole:
            line = json.loads(raw)
            if line["type"] == "stop":
                self.stopping = True
            else:
                self._lines.append(line)
        return True
