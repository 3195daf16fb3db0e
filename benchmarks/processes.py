"""Memory and processor time of processes, from procfs (proc(5))."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one process or several.

    Attributes:
        rss: resident, shared pages counted in full.
        pss: resident, each shared page divided by the number of processes that share it; None where the kernel
            does not let us read it (a process that is not dumpable, seen by another user than root).
    """

    rss: int
    pss: int | None


def memory(pids: Iterable[int]) -> Memory:
    """The sum over `pids`."""
    parts = [(_field(pid, "status", "VmRSS") or 0, _pss(pid)) for pid in pids]
    known = [pss for _, pss in parts if pss is not None]
    return Memory(sum(rss for rss, _ in parts), sum(known) if len(known) == len(parts) else None)


def _pss(pid: int) -> int | None:
    with contextlib.suppress(PermissionError):
        return _field(pid, "smaps_rollup", "Pss")
    return None


def _field(pid: int, file: str, name: str) -> int | None:
    for line in (
        Path(f"/proc/{pid}/{file}").read_text(encoding="ascii", errors="replace").splitlines()
    ):
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * KIB
    return None


def processor_time(pid: int) -> float:
    """Seconds of user and system time that all threads of a process have used, ended ones too."""
    # The kernel's number for the clock of a process (clock_getcpuclockid(3)); procfs counts in steps of 10 ms.
    return time.clock_gettime(~pid << 3 | 2)


@dataclass(frozen=True, slots=True)
class Sandboxed:
    """The processes of one worker that do something: its sidecar, and its agent with what that has started."""

    sidecar: int
    agent: list[int]

    @classmethod
    def below(cls, pid: int | None) -> Sandboxed:
        """Those of the worker whose process is `pid`.

        Raises:
            RuntimeError: there is no sidecar.
        """
        inside = {
            each: words
            for each, words in descendants(pid or 0).items()
            if not is_wall(words)  # whose command line names the sidecar, too
        }
        sidecars = [each for each, words in inside.items() if "postroom.sidecar" in words]
        if pid is None or len(sidecars) != 1:
            raise RuntimeError("the worker has no sidecar")
        return cls(sidecars[0], [each for each in inside if each not in sidecars])


def is_wall(words: list[str]) -> bool:
    """Whether that is the command line of a process of bubblewrap."""
    return bool(words) and Path(words[0]).name == "bwrap"


def descendants(root: int) -> dict[int, list[str]]:
    """The command lines of all processes below `root`, by process id."""
    found: dict[int, list[str]] = {}
    children = _children()
    ahead = [root]
    while ahead:
        for pid in children.get(ahead.pop(), []):
            with contextlib.suppress(OSError):
                found[pid] = _words(pid)
                ahead.append(pid)
    return found


def _words(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        # Processes end while we look, and the name of a program may hold anything, a ")" too.
        with contextlib.suppress(OSError):
            stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
    return children
