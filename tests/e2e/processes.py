"""The processes below a post room, as procfs shows them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SIDECAR = "postroom.sidecar"


@dataclass(frozen=True, slots=True)
class Process:
    """One process; `started` (clock ticks since boot) tells it from a later one with its number."""

    pid: int
    parent: int
    started: int
    command: str

    def kill(self) -> None:
        """SIGKILL, if it is still there."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def living() -> dict[int, Process]:
    """Every process that is not a zombie, by its number."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, *fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if state != "Z":
                pid = int(entry.name)
                found[pid] = Process(pid, int(fields[0]), int(fields[18]), command)
    return found


def below(root: int) -> list[Process]:
    """All descendants of `root`, parents before children."""
    everything = living()
    found: list[Process] = []
    ahead = [root]
    while ahead:
        parent = ahead.pop(0)
        children = [process for process in everything.values() if process.parent == parent]
        found += children
        ahead += [process.pid for process in children]
    return found


def sidecar_of(sandbox: int) -> Process | None:
    """The sidecar in the sandbox whose monitor is `sandbox`; None while there is none."""
    inside = [p for p in below(sandbox) if SIDECAR in p.command and "bwrap" not in p.command]
    return inside[0] if inside else None


def agent_of(sandbox: int) -> Process | None:
    """The agent program in the sandbox whose monitor is `sandbox`; None while there is none."""
    sidecar = sidecar_of(sandbox)
    children = below(sidecar.pid) if sidecar else []
    return children[0] if children else None
