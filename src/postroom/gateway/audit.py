"""The audit log: JSON lines, each written before what it tells of happens."""

from __future__ import annotations

import os
from pathlib import Path

from postroom.errors import StateUnwritable


class AuditLog:
    """Appends audit lines to a file that only the owner can read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = self._open()
        # Whatever an earlier process left unfinished gets its line break first.
        self._torn = self._ends_torn()

    def _open(self) -> int:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unwritable(error.strerror) from error

    def _ends_torn(self) -> bool:
        if not self._path.is_file() or not self._path.stat().st_size:
            return False
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"

    def write(self, lines: bytes) -> None:
        """Append whole lines.

        Raises:
            StateUnwritable: the disk is full or the folder gone: what cannot be audited is not passed on.
        """
        encoded = b"\n" * self._torn + lines
        try:
            written = os.write(self._descriptor, encoded)
        except OSError as error:
            raise self._unwritable(error.strerror) from error
        self._torn = written < len(encoded)
        if self._torn:
            raise self._unwritable("No space left for a whole line")

    def _unwritable(self, why: str | None) -> StateUnwritable:
        return StateUnwritable(f"cannot write the audit log {self._path}: {why}")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
