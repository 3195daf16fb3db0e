"""Plain files that somebody else may have put there: never through a link, never a pipe, and not too large."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def opened(path: Path, largest: int, *, single: bool = False) -> int:
    """A descriptor of a plain file to read.

    Args:
        largest: bytes that it may have.
        single: it may have no other name either.

    Raises:
        OSError: there is none, or it is none.
    """
    place = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(place)
    linked = single and found.st_nlink != 1
    if not stat.S_ISREG(found.st_mode) or linked or found.st_size > largest:
        os.close(place)
        raise OSError(None, "it is no plain file, or too large")
    return place


def read(path: Path, largest: int) -> bytes | None:
    """What is in a plain file, None if there is none; raises OSError if it is something else."""
    try:
        place = opened(path, largest)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(place, "rb") as file:
        return file.read(largest)


def is_file(path: Path) -> bool:
    """Whether it is a plain file, and no link to one."""
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Whether it is a folder, and no link to one."""
    return stat.S_ISDIR(_mode(path))


def is_direct(path: Path, top: Path) -> bool:
    """Whether no folder on the way from `top` to `path` is a link, or missing."""
    between = path.relative_to(top).parents
    return all(is_folder(top / folder) for folder in between)


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0
