"""Files that a power cut takes nothing of, and the free space of a disk."""

from __future__ import annotations

import os
from pathlib import Path

from postroom.errors import StateUnwritable

MIB = 1024 * 1024

RESERVE = 4 * MIB
"""Bytes that stay free: the log's index files and the database need some to go on."""


def sync(path: Path) -> None:
    """Return when the file, or the names in the folder, at `path` are on disk.

    Raises:
        OSError: they cannot be brought there.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_space(folder: Path, reserve: int = RESERVE) -> None:
    """Raise `StateUnwritable` unless `folder` exists and has `reserve` bytes free."""
    if _free(folder) < reserve:
        raise StateUnwritable(
            f"the disk of {folder} is full; nothing was stored",
            remedy="free space, then try again",
        )


def check_room(folder: Path) -> None:
    """Raise `StateUnwritable` unless `folder` exists and has space for a post room to accept messages."""
    free = _free(folder)
    if free < RESERVE:
        raise StateUnwritable(
            f"the disk of {folder} is full: {free / MIB:.1f} MiB are free, "
            f"and with less than {RESERVE // MIB} a post room refuses every message",
            remedy="free space, or choose another folder with --state DIR",
        )


def _free(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except OSError as error:
        raise StateUnwritable(
            f"cannot read the free space of {folder}: {error.strerror}"
        ) from error
    return found.f_bavail * found.f_frsize
