"""The resources that a sandbox uses, from procfs and the file system, for limits that the kernel does not keep itself.

All sandboxes share one reading of the process table. Memory is the private memory of the processes; only above the
limit is it counted again with shared pages divided (slow), so that a program that forks does not pay twice for one
page.
"""

from __future__ import annotations

import math
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
READABLE_MODE = stat.S_IRUSR | stat.S_IXUSR
DEEPEST = 100
"""Depth of nested folders: each one on the way down costs an open descriptor."""
SMALLEST = 4096
"""Bytes that every entry of a folder counts at least; otherwise endless empty files would be free."""

Table = Mapping[int, list[tuple[int, int]]]
"""Parent to its children, each with its number of threads."""


def table() -> Table:
    """All processes of this machine now."""
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
    """Bytes that the processes and the sandbox's folders in memory take, counted more exactly above `limit`."""
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
    """Its share of anonymous memory. A plain user cannot read the sidecar's: then its upper bound."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return _private(pid)
    for line in lines:
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024
    return _private(pid)


def _in_memory(pids: list[int]) -> int:
    """Bytes in the sandbox's folders in memory; the host's own folders count nothing."""
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


def disk(folders: Iterable[Path], limit: int) -> float:
    """Bytes in the folders; counting stops above `limit`, which bounds the work.

    Infinite if they cannot be counted: hiding files exceeds any limit.
    """
    count = _Count(limit)
    for folder in folders:
        count.add(str(folder.resolve()), None, 0)
    return count.used


class _Count:
    """Walks folders by descriptors: a path can be too long for the system, or lead elsewhere by now."""

    def __init__(self, limit: int) -> None:
        self.used: float = 0
        self._limit = limit
        self._linked: set[tuple[int, int]] = set()

    def add(self, name: str, parent: int | None, depth: int) -> None:
        """Count the folder `name` of the folder open as `parent`, with all folders below it."""
        if depth > DEEPEST:
            self.used = math.inf
            return
        try:
            folder = _opened(name, parent)
        except PermissionError:
            self.used = math.inf
            return
        except OSError:
            return  # it is gone, or something else by now
        try:
            for below in self._entries(folder):
                if self.used > self._limit:
                    return
                self.add(below, folder, depth + 1)
        finally:
            os.close(folder)

    def _entries(self, folder: int) -> list[str]:
        """Count the entries of this folder; return the names of its folders."""
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    self.used += self._size(entry)
                    if entry.is_dir(follow_symlinks=False):
                        found.append(entry.name)
                if self.used > self._limit:
                    break
        return found

    def _size(self, entry: os.DirEntry[str]) -> int:
        found = entry.stat(follow_symlinks=False)
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            if (found.st_dev, found.st_ino) in self._linked:
                return SMALLEST
            self._linked.add((found.st_dev, found.st_ino))
        return max(found.st_blocks * BLOCK, SMALLEST)


def _opened(name: str, parent: int | None) -> int:
    """Open the folder and give its owner back the right to read and search it; raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    if mode & READABLE_MODE != READABLE_MODE:
        with suppress(NotImplementedError, FileNotFoundError):
            os.chmod(name, stat.S_IMODE(mode) | READABLE_MODE, dir_fd=parent, follow_symlinks=False)
    return os.open(name, flags, dir_fd=parent)
