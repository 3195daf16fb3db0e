"""The files of procfs that show the kernel, which no program behind a wall needs.

A process whose user is the host's root, if only in a map, owns these files, so it may read them without any capability:
addresses of the kernel, the layout of its memory, its timers.
"""

from __future__ import annotations

from pathlib import Path

from postroom.sandbox.selftest import kernel_files

PROC = "/proc"
CAP_SYS_ADMIN = 21

HIDDEN = (
    *("acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "sched_debug", "scsi"),
    *("timer_list", "timer_stats"),
    *("tty/driver",),
)
"""Paths of procfs that container runtimes hide (the default `maskedPaths` of OCI runtimes), and the serial lines."""

SETTABLE = ("bus", "fs", "irq", "sys", "sysrq-trigger")
"""Paths that they make read-only (`readonlyPaths`)."""


def hidden() -> dict[str, bool]:
    """Existing paths of `HIDDEN` and the files that only root may read; each with whether it is a folder."""
    paths = map(Path, sorted({*kernel_files(), *(f"{PROC}/{name}" for name in HIDDEN)}))
    return {str(path): path.is_dir() for path in paths if path.exists()}


def may_mount() -> bool:
    """Whether this process may mount without a user namespace; the root of a container seldom may."""
    try:
        lines = Path(PROC, "self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    found = (int(line.split()[1], 16) for line in lines if line.startswith("CapEff:"))
    return bool(next(found, 0) >> CAP_SYS_ADMIN & 1)


def settable() -> tuple[str, ...]:
    """The paths of `SETTABLE` that this kernel has."""
    return tuple(str(path) for path in (Path(PROC, name) for name in SETTABLE) if path.exists())
