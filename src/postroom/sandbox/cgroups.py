"""Control groups (version 2, cgroups(7)): one for each sandbox, where this process may make some.

A place for them is the group that Postroom runs in, or the nearest one above, in which a group can be made
that really bounds memory and processes and that a process can be started in: it is tried, never assumed.
Groups carry the process id and the start time of their maker in their name, so what a killed post room has
left is known and removed. Nobody's process is moved but what Postroom starts itself.
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
"""A process that was killed leaves its group when the kernel gets to it."""

# The process that writes 0 joins, and becomes the command without having run anything else.
_ENTER = 'echo 0 > "$0" || exit 125; exec "$@"'


def entering(group: Path | None, command: list[str]) -> list[str]:
    """`command`, started in `group`; as it is for None."""
    if group is None:
        return command
    return ["/bin/sh", "-c", _ENTER, str(group / "cgroup.procs"), *command]


@dataclass(frozen=True)
class Group:
    """The control group of one sandbox."""

    folder: Path

    def set(self, limits: Limits) -> None:
        """Write the limits; raises OSError if the kernel has not got one of them."""
        if limits.memory is not None:
            self._write("memory.max", limits.memory)
            # Where swap is counted none is given: memory that is swapped out would be out of the limit.
            with suppress(FileNotFoundError):
                self._write("memory.swap.max", 0)
            # All processes are ended together: no half of a worker goes on, and the end is seen.
            self._write("memory.oom.group", 1)
        if limits.processes is not None:
            self._write("pids.max", limits.processes + OUTERMOST)
        if limits.cpu_percent is not None:
            with suppress(FileNotFoundError):
                self._write("cpu.max", f"{limits.cpu_percent * CPU_PERIOD // 100} {CPU_PERIOD}")

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel has ended a process for the memory limit."""
        return self._event("memory.events", "oom_kill") > 0

    @property
    def out_of_processes(self) -> bool:
        """Whether the kernel has refused a process for the limit of processes."""
        return self._event("pids.events", "max") > 0

    async def remove(self) -> None:
        """Kill whoever is left in it and remove it; what cannot be removed is at the next start."""
        with suppress(OSError):
            self._write("cgroup.kill", 1)
        for _ in range(REMOVAL_ROUNDS):
            if _removed(self.folder):
                return
            await asyncio.sleep(REMOVAL_PAUSE)

    def _write(self, name: str, value: int | str) -> None:
        # Not write_text: it would make a file where the kernel has none.
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
    """The place where control groups are made.

    place: the folder of the group above them.
    cpu: whether shares of the processor can be bounded, too.
    """

    place: Path
    cpu: bool
    owner: str = field(default_factory=lambda: _owner(os.getpid()))
    _numbers: count = field(default_factory=lambda: count(1), repr=False)

    def make(self, limits: Limits) -> Group:
        """A new group with these limits.

        Raises:
            SandboxUnavailable: the kernel refused it.
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
    """The nearest place where groups hold, proven with a process; None if there is none."""
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
    """Where the hierarchy is mounted, and which group of it."""
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
    """`folder` as a place; its controllers are handed down if they are not yet."""
    there = set((folder / "cgroup.controllers").read_text(encoding="ascii").split())
    if not there >= NEEDED:
        return None
    down = folder / "cgroup.subtree_control"
    given = set(down.read_text(encoding="ascii").split())
    if not given >= NEEDED:
        # Refused (EBUSY) where processes are in it, so that nothing of anybody else is changed there.
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
    """Process id and start time, which no two processes have together; "" for a process that is gone."""
    with suppress(OSError, IndexError):
        after = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2]
        return f"{pid}-{after.split()[19]}"
    return ""
