"""Runs a program without a wall and leaves none of its processes behind: `reaper.py PARENT -- argv`.

Without a process namespace this script takes the place of a namespace's process 1: orphans fall to it, and it ends them
all when the program ends or when Postroom (PARENT) does. It runs by its file name and imports the standard library
only.

Orphans and death with the parent need Linux (prctl(2)). Elsewhere only the program's process group ends, which is one
reason why this is not a wall.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ROUNDS = 1000
"""Rounds of looking for processes that were forked while others were being killed."""
WATCHED = (signal.SIGTERM, signal.SIGCHLD)


def descendants(root: int) -> list[int]:
    """Process ids of all descendants of `root`; empty without procfs."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            state, parent = (
                (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            )
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    ahead = [root]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def kill_descendants(root: int) -> None:
    """SIGKILL every descendant of `root`, until none is left."""
    for _ in range(ROUNDS):
        found = descendants(root)
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def main(argv: list[str]) -> int:
    """Run the program to its end; returns its exit status, 128 + N for signal N."""
    parent, separator, *command = argv
    if separator != "--" or not command:
        raise SystemExit("usage: reaper.py PARENT -- program [argument...]")
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    _tie_to_parent()
    if os.getppid() != int(parent):
        return 1  # the parent ended before the kernel could signal its death
    try:
        child = os.posix_spawnp(command[0], command, os.environ, setpgroup=0, setsigmask=[])
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    try:
        return _watch(child, int(parent))
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        kill_descendants(os.getpid())


def _tie_to_parent() -> None:
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _watch(child: int, parent: int) -> int:
    while True:
        if signal.sigwait(WATCHED) == signal.SIGTERM:
            if os.getppid() != parent:
                return 1
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        status = _reap(child)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code


def _reap(child: int) -> int | None:
    """Collect ended processes; return the wait status of `child` if it was among them."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                return ended[1]
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
