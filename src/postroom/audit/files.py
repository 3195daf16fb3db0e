"""The files of the audit log: the current one, and numbered closed ones beside it.

The log is written to `audit.jsonl`. A full file becomes `audit-0000000001.jsonl`, and a new one takes its name. The
number of the current file is the one that it will get then.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import BinaryIO

from postroom.disk import sync

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_ATTEMPTS = 5


class Files:
    """Names, opens and rotates the files of the log."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next = path.with_name(f"{path.name}.next")
        self._pattern = re.compile(rf"{re.escape(path.stem)}-(\d{{10}}){re.escape(path.suffix)}")

    def closed_path(self, number: int) -> Path:
        """The path of file `number` once it is closed."""
        return self.path.with_name(f"{self.path.stem}-{number:010}{self.path.suffix}")

    def closed(self) -> list[int]:
        """Numbers of the closed files, oldest first."""
        try:
            names = os.listdir(self.path.parent)  # noqa: PTH208 (no Path for each is needed)
        except FileNotFoundError:
            return []
        found = (self._pattern.fullmatch(name) for name in names)
        return sorted(int(match[1]) for match in found if match)

    def number(self) -> int:
        """Number of the current file."""
        closed = self.closed()
        return closed[-1] + 1 if closed else 1

    def append(self) -> int:
        """Open the current file for appending, and make it where it is missing; returns the descriptor."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._next.unlink(missing_ok=True)  # left by a rotation that was cut short
        return os.open(self.path, _FLAGS, 0o600)

    def rotate(self, number: int) -> int:
        """Close the current file as `number` and begin a new one; returns the descriptor of the new one.

        A kill at any moment leaves either the old file under its name, or the closed one and no current one.

        Raises:
            OSError: nothing was changed.
        """
        descriptor = os.open(self._next, _FLAGS | os.O_TRUNC, 0o600)
        try:
            self.path.rename(self.closed_path(number))
            try:
                self._next.rename(self.path)
            except OSError:
                self.closed_path(number).rename(self.path)
                raise
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def open(self, number: int) -> BinaryIO | None:
        """Open file `number` for reading; None if it was deleted or never existed."""
        for _ in range(_ATTEMPTS):
            try:
                return self.closed_path(number).open("rb")
            except FileNotFoundError:
                if number != self.number():
                    return None
            try:
                file = self.path.open("rb")
            except FileNotFoundError:
                continue  # in the midst of a rotation
            if not self.closed_path(number).exists():
                return file
            file.close()  # rotated just now: this may be the next one
        return None

    def sync_folder(self) -> None:
        """Bring the names of the files to the disk."""
        sync(self.path.parent)
