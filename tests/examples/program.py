"""An example program over its pipes, with the test in Postroom's place."""

from __future__ import annotations

import ctypes
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEADLINE = 20.0

# linux/prctl.h, linux/capability.h
PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2

Line = dict[str, Any]


class Program:
    """A running program; every wait ends after DEADLINE seconds."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._part = b""
        self._lines: list[Line] = []

    def tell(self, **line: object) -> None:
        """Write a line to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()

    def close(self) -> None:
        """Tell it no more."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def line(self) -> Line:
        """The next line that it writes."""
        found = self._next()
        assert found is not None, f"it ended with {self.process.wait(DEADLINE)}"
        return found

    def until(self, *kinds: str) -> list[Line]:
        """Its lines up to the first one of such a type, which is the last in the list."""
        heard = [self.line()]
        while heard[-1]["type"] not in kinds:
            heard.append(self.line())
        return heard

    def rest(self) -> list[Line]:
        """Its lines up to its end, which has to be a good one."""
        heard = []
        while (line := self._next()) is not None:
            heard.append(line)
        assert self.process.wait(DEADLINE) == 0
        return heard

    def _next(self) -> Line | None:
        assert self.process.stdout is not None
        end = time.monotonic() + DEADLINE
        while not self._lines:
            left = max(0.0, end - time.monotonic())
            assert select.select([self.process.stdout], [], [], left)[0], "it says nothing"
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                assert self._part == b""
                return None
            *whole, self._part = (self._part + data).split(b"\n")
            self._lines = [json.loads(raw) for raw in whole]
        return self._lines.pop(0)


def obey_file_modes() -> None:
    """Give up what lets root read everything; for anybody else it does nothing."""
    libc = ctypes.CDLL(None)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


@contextmanager
def running(name: str, *words: str, cwd: Path, change: str = "pass") -> Generator[Program]:
    """The example `name`.py with the arguments `words`; it is gone afterwards.

    Args:
        name: of the program, without ending.
        words: its arguments.
        cwd: its workspace.
        change: a statement that is executed before its `main`.
    """
    start = f"sys.path.insert(0, {str(EXAMPLES)!r}); import {name}; {change}; {name}.main()"
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", f"import sys; {start}", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=cwd,
        preexec_fn=obey_file_modes,  # noqa: PLW1509 (no thread here holds a lock that it takes)
    )
    try:
        yield Program(process)
    finally:
        process.kill()
        process.wait(DEADLINE)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None and not pipe.closed:
                with suppress(BrokenPipeError):
                    pipe.close()
