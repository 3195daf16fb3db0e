"""What a sandbox uses, read from procfs and the file system: for limits that the kernel does not keep itself.

One look at the process table is made for all sandboxes. Memory is what processes have for themselves; only what
comes out over a limit is counted again with shared pages divided (slow), so that a program that forks is not
charged twice for one page.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from postroom.sandbox.arguments import MEMORY_FOLDERS

READABLE = sys.platform == "linux"
"""Whether there is a procfs to read."""
PAGE = os.sysconf("SC_PAGE_SIZE")
BLOCK = 512
"""Bytes of a block in st_blocks (stat(2))."""
SMALLEST = 4096
"""What every entry of a folder counts at least: else endless empty files would be free."""

Table = Mapping[int, list[tuple[int, int]]]
"""Parent to its children, each with its number of threads."""


def table() -> Table:
    """All processes of this machine, as of now."""
    children: dict[int, list[tuple[int, int]]] = {}
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdigit()]
    for pid in pids:
        with suppress(OSError, IndexError, ValueError):
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            if fields[0] != b"Z":
                children.setdefault(int(fields[1]), []).append((pid, int(fields[17])))
    return children


def below(processes: Table, root: int) -> list[tuple[int, int]]:
    """The descendants of `root` with their numbers of threads."""
    found: list[tuple[int, int]] = []
    ahead = [root]
    while ahead:
        children = processes.get(ahead.pop(), [])
        found += children
        ahead += [pid for pid, _ in children]
    return found


def memory(pids: Iterable[int], limit: int) -> int:
    """Bytes that the processes and the sandbox's folders in memory take, counted closer if it is over `limit`."""
    known = list(pids)
    folders = _in_memory(known)
    rough = folders + sum(map(_private, known))
    return rough if rough <= limit else folders + sum(map(_proportional, known))


def _private(pid: int) -> int:
    with suppress(OSError, IndexError, ValueError):
        fields = Path(f"/proc/{pid}/statm").read_bytes().split()
        return (int(fields[1]) - int(fields[2])) * PAGE
    return 0


def _proportional(pid: int) -> int:
    """Its share of anonymous memory. The sidecar cannot be read so by a plain user: then what it has at most."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return _private(pid)
    for line in lines:
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024
    return _private(pid)


def _in_memory(pids: list[int]) -> int:
    """Bytes in the sandbox's folders in memory; those that are the host's own count nothing."""
    for pid in reversed(pids):
        with suppress(OSError):
            return sum(_used(name, f"/proc/{pid}/root{name}") for name in MEMORY_FOLDERS)
    return 0


def _used(name: str, folder: str) -> int:
    with suppress(FileNotFoundError):
        if Path(name).stat().st_dev == Path(folder).stat().st_dev:
            return 0
    found = os.statvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def disk(folders: Iterable[Path], limit: int) -> int:
    """Bytes in the folders; it stops when they are over `limit`, so the work is bounded by that."""
    used = 0
    linked: set[tuple[int, int]] = set()
    ahead = [str(folder) for folder in folders]
    while ahead and used <= limit:
        with suppress(OSError), os.scandir(ahead.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    used += _size(entry, linked)
                    if entry.is_dir(follow_symlinks=False):
                        ahead.append(entry.path)
                if used > limit:
                    break
    return used


def _size(entry: os.DirEntry[str], linked: set[tuple[int, int]]) -> int:
    found = entry.stat(follow_symlinks=False)
    if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
        if (found.st_dev, found.st_ino) in linked:
            return SMALLEST
        linked.add((found.st_dev, found.st_ino))
    return max(found.st_blocks * BLOCK, SMALLEST)
