"""What tests start ends with them, also where the run itself is killed: a process beside the run watches for its end.

A run marks itself (conftest.py), and whatever it starts inherits that, a post room in the background and its
workers too. When the run has ended, however that was, each process that still has the mark is killed. Linux alone.

    python guard.py PID MARK
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path

VARIABLE = "POSTROOM_TEST_RUN"
"""Has the mark, a number, in the environment of what a run starts."""

ROUNDS = 5
"""Times that processes are looked for: what is killed may just have begun another."""


def marked(mark: str) -> list[int]:
    """The ids of the processes with that mark: as a limit or, where a run within this one set its own, a variable."""
    wanted = f"{VARIABLE}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with suppress(OSError):
            limit, _ = resource.prlimit(pid, resource.RLIMIT_RTTIME)
            if limit == int(mark) or wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def main(run: int, mark: str) -> None:
    """Wait for the end of the process `run`; then end what has the mark."""
    _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    resource.setrlimit(resource.RLIMIT_RTTIME, (hard, hard))  # this process is not to be ended
    with suppress(ProcessLookupError):
        waiting = os.pidfd_open(run)
        select.select([waiting], [], [])
    for _ in range(ROUNDS):
        for pid in marked(mark):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
