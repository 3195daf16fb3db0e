"""Control groups (version 2, cgroups(7)): one for each sandbox, where this process may make some.

Their parent is the group that Postroom runs in, or the nearest one above, where Postroom can make a group that really
bounds memory and processes, and start a process in it: tried, never assumed. The name of a group holds the process id
and the start time of its maker, so a later start recognises and removes those of a killed post room. Postroom moves
only processes that it starts itself.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from postroom.errors import SandboxUnavailable
from postroom.sandbox.port import Limits

NEEDED = frozenset({"memory", "pids"})
WANTED = frozenset({"cpu"})
PREFIX = "postroom-"
CPU_PERIOD = 100_000
"""Microseconds over which a share of a processor is counted; the kernel's default."""
OUTERMOST = 1
"""Processes of a sandbox that are Postroom's own and not counted: bwrap's monitor, or the reaper."""
TRIAL = Limits(memory=64 << 20, processes=10, cpu_percent=100)
TRIAL_DEADLINE = 5.0
REMOVAL_ROUNDS, REMOVAL_PAUSE = 100, 0.01
"""A killed process leaves its group only when the kernel gets to it."""

# The process that writes 0 joins; it then becomes the command without running anything else.
_ENTER = 'echo 0 > "$0" || exit 125; exec "$@"'


def entering(group: Path | None, command: list[str]) -> list[str]:
    """`command`, started in `group`; unchanged for None."""
    if group is None:
        return command
    return ["/bin/sh", "-c", _ENTER, str(group / "cgroup.procs"), *command]


@dataclass(frozen=True)
class Group:
    """The control group of one sandbox."""

    folder: Path

    def set(self, limits: Limits) -> None:
        """Write the limits; raises OSError if the kernel lacks one of them."""
        if limits.memory is not None:
            self._write("memory.max", limits.memory)
            # Where the kernel counts swap, the group gets none: swapped-out memory would escape the limit.
            with suppress(FileNotFoundError):
                self._write("memory.swap.max", 0)
            # All processes end together: no half of a worker goes on, and the end is seen.
            self._write("memory.oom.group", 1)
        if limits.processes is not None:
            self._write("pids.max", limits.processes + OUTERMOST)
        if limits.cpu_percent is not None:
            with suppress(FileNotFoundError):
                self._write("cpu.max", f"{limits.cpu_percent * CPU_PERIOD // 100} {CPU_PERIOD}")

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel has killed a process for the memory limit."""
        return self._event("memory.events", "oom_kill") > 0

    @property
    def out_of_processes(self) -> bool:
        """Whether the kernel has refused a process for the limit of processes."""
        return self._event("pids.events", "max") > 0

    async def remove(self) -> None:
        """Kill the processes in it and remove it; the next start removes what cannot go now."""
        with suppress(OSError):
            self._write("cgroup.kill", 1)
        for _ in range(REMOVAL_ROUNDS):
            if _removed(self.folder):
                return
            await asyncio.sleep(REMOVAL_PAUSE)

    def _write(self, name: str, value: int | str) -> None:
        # Not write_text: it would make a file that the kernel lacks.
        with (self.folder / name).open("r+", encoding="ascii") as file:
            file.write(f"{value}\n")

    def _event(self, name: str, key: str) -> int:
        with suppress(OSError, ValueError):
            for line in (self.folder / name).read_text(encoding="ascii").splitlines():
                found, _, number = line.partition(" ")
                if found == key:
                    return int(number)
        return 0


@dataclass(frozen=True)
class Groups:
    """The group that holds the sandboxes' groups.

    place: its folder.
    cpu: whether it can also bound shares of the processor.
    """

    place: Path
    cpu: bool
    owner: str = field(default_factory=lambda: _owner(os.getpid()))
    _numbers: count = field(default_factory=lambda: count(1), repr=False)

    def make(self, limits: Limits) -> Group:
        """A new group with these limits.

        Raises:
            SandboxUnavailable: the kernel refused.
        """
        folder = self.place / f"{PREFIX}{self.owner}-{next(self._numbers)}"
        try:
            folder.mkdir()
            group = Group(folder)
            group.set(limits)
        except OSError as error:
            _removed(folder)
            raise SandboxUnavailable(
                f"no control group can be made: {error}",
                remedy="see docs/security.md, Limits; without control groups: start Postroom where it may make none",
            ) from error
        return group


def find() -> Groups | None:
    """The nearest place where groups hold, proven with a process, or None."""
    for folder in _candidates():
        with suppress(OSError, subprocess.SubprocessError, SandboxUnavailable):
            groups = _opened(folder)
            if groups is not None and _holds(groups):
                remove_stale(folder)
                return groups
    return None


def remove_stale(place: Path) -> None:
    """Remove the empty groups whose maker is gone."""
    for folder in place.glob(f"{PREFIX}*"):
        maker = folder.name.removeprefix(PREFIX).rpartition("-")[0]
        pid = maker.partition("-")[0]
        if pid.isdigit() and _owner(int(pid)) != maker:
            _removed(folder)


def _candidates() -> list[Path]:
    """The group of this process and those above it, nearest first."""
    mount, root = _mount()
    if mount is None:
        return []
    for line in _lines("/proc/self/cgroup"):
        number, _, path = line.split(":", 2)
        if number == "0" and ".." not in path.split("/"):
            own = mount / path.removeprefix(root).lstrip("/")
            return [own, *(above for above in own.parents if above.is_relative_to(mount))]
    return []


def _mount() -> tuple[Path | None, str]:
    """The mount point of the hierarchy, and the mounted group."""
    for line in _lines("/proc/self/mountinfo"):
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            root, point = fields.split()[3:5]
            return Path(point.replace("\\040", " ")), root.rstrip("/")
    return None, ""


def _lines(path: str) -> list[str]:
    with suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    return []


def _opened(folder: Path) -> Groups | None:
    """`folder` as a place, with its controllers handed down."""
    there = set((folder / "cgroup.controllers").read_text(encoding="ascii").split())
    if not there >= NEEDED:
        return None
    down = folder / "cgroup.subtree_control"
    given = set(down.read_text(encoding="ascii").split())
    if not given >= NEEDED:
        # The kernel refuses (EBUSY) where the group has processes, so no other program's group changes.
        down.write_text(" ".join(f"+{name}" for name in sorted(there & (NEEDED | WANTED))))
        given = set(down.read_text(encoding="ascii").split())
    return Groups(folder, "cpu" in given) if given >= NEEDED else None


def _holds(groups: Groups) -> bool:
    group = groups.make(TRIAL)
    try:
        done = subprocess.run(
            entering(group.folder, ["/bin/cat", "/proc/self/cgroup"]),
            capture_output=True,
            timeout=TRIAL_DEADLINE,
            check=False,
        )
        return group.folder.name in done.stdout.decode(errors="replace")
    finally:
        _removed(group.folder)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _owner(pid: int) -> str:
    """Process id and start time, which together are unique; "" for a process that is gone."""
    with suppress(OSError, IndexError):
        after = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2]
        return f"{pid}-{after.split()[19]}"
    return ""
