"""A copy of a folder: links stay links, whatever they lead to, and special files stay behind."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path

from postroom.errors import InvalidInput, StateUnwritable
from postroom.sandbox.never import name_of
from postroom.sandbox.policy import refuse_another
from postroom.sandbox.usage import DEEPEST, SMALLEST
from postroom_a2a.text import one_line

CLONE = 0x40049409
"""FICLONE (ioctl_ficlone(2)): a copy that shares its blocks until one of the two changes."""
GIT = ".git"
MOST_NOTED = 5
LONGEST_NAME = 200
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Copied:
    """What was copied: bytes as a disk limit counts them, and the names of what was left out."""

    size: int = 0
    left: list[str] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """Sentences for people."""
        if not self.left:
            return []
        named = ", ".join(self.left[:MOST_NOTED])
        more = f" and {len(self.left) - MOST_NOTED} more" if len(self.left) > MOST_NOTED else ""
        return [f"not copied, since they are no plain files or git's own: {named}{more}"]


def copy(source: Path, target: Path, limit: int | None) -> Copied:
    """Copy what is in `source` to the empty folder `target`, without any `.git`.

    Args:
        source: by its real name.
        limit: bytes that the worker's disk limit allows, None for no limit.

    Raises:
        InvalidInput: it holds more, or cannot be read.
        StateUnwritable: the disk is full.
    """
    work = _Copy(source, limit)
    try:
        work.top(target)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StateUnwritable("the disk is full: the folder was not copied") from error
        raise InvalidInput(
            f"cannot copy {source}: {error.filename}: {error.strerror}",
            remedy="make it readable, or move it",
        ) from error
    return work.copied


class _Copy:
    def __init__(self, top: Path, limit: int | None) -> None:
        self.copied = Copied()
        self._top = top
        self._limit = limit

    def top(self, target: Path) -> None:
        """Copy what is in the folder."""
        place = os.open(self._top, _FOLDER)
        try:
            refuse_another(self._top, name_of(place))
            self._folder(place, Path(), target, 0)
        finally:
            os.close(place)

    # Each folder is opened in the one before and never through a link: another worker may write in the folder, and
    # put a link to any place of the machine where a folder was a moment ago.
    def _folder(self, source: int, name: Path, target: Path, depth: int) -> None:
        if depth > DEEPEST:
            raise InvalidInput(f"{self._top} has folders over {DEEPEST} deep")
        with os.scandir(source) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if entry.name.casefold() == GIT and (depth or entry.is_symlink()):
                    self._leave(name / entry.name)
                elif entry.name.casefold() != GIT:
                    self._count(found)
                    self._one(source, name / entry.name, found.st_mode, target / entry.name, depth)

    def _one(self, source: int, name: Path, mode: int, target: Path, depth: int) -> None:
        if stat.S_ISLNK(mode):
            target.symlink_to(os.readlink(name.name, dir_fd=source))
        elif stat.S_ISDIR(mode):
            target.mkdir(mode=0o700)
            place = os.open(name.name, _FOLDER, dir_fd=source)
            try:
                self._folder(place, name, target, depth + 1)
            finally:
                os.close(place)
            target.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)
        elif stat.S_ISREG(mode):
            _file(source, name.name, target)
            target.chmod(stat.S_IMODE(mode) & 0o777 | stat.S_IRUSR | stat.S_IWUSR)
        else:
            self._leave(name)

    def _count(self, found: os.stat_result) -> None:
        self.copied.size += max(SMALLEST, found.st_size if stat.S_ISREG(found.st_mode) else 0)
        if self._limit is not None and self.copied.size > self._limit:
            raise InvalidInput(
                f"{self._top} is over the worker's disk limit of {self._limit >> 20} MiB",
                remedy="raise disk_mb below [compute], or work on a branch: --as worktree",
            )

    def _leave(self, name: Path) -> None:
        self.copied.left.append(one_line(str(name), LONGEST_NAME))


def _file(folder: int, name: str, target: Path) -> None:
    # O_NOFOLLOW: what was a file a moment ago may be a link by now.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    place = os.open(name, flags, dir_fd=folder)
    with os.fdopen(place, "rb") as old, target.open("xb") as new:
        try:
            fcntl.ioctl(new.fileno(), CLONE, old.fileno())
        except OSError:
            shutil.copyfileobj(old, new, 1 << 20)
