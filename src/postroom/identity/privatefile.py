"""Secrets on disk: a folder for this user alone, and files that are whole or missing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from postroom import disk
from postroom.errors import StateUnwritable


def prepare(folder: Path) -> None:
    """Make `folder`, 0700; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)  # it may have existed with wider permissions


def write_private(path: Path, content: bytes) -> None:
    """Write a 0600 file, whole or not at all; a crash of the machine may lose it.

    Raises:
        StateUnwritable: the disk is full or read-only.
    """
    try:
        replace(path, content, sync=False)
    except OSError as error:
        raise StateUnwritable(f"cannot write {path}: {error.strerror}") from error


def replace(path: Path, content: bytes, *, sync: bool = True) -> None:
    """Write a 0600 file; after a crash the old one or the new one is on disk. Raises OSError."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    if not sync:
        return
    disk.sync(path.parent)  # the rename itself
