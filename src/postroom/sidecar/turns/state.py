"""Small files of the sidecar's state folder that outlive its SIGKILL: JSON, replaced whole.

The folder is the sidecar's, but the agent can write it: a link in the place of a file is not followed, and what cannot
be read counts as absent.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from postroom.errors import StateUnwritable

MOST = 4 * 1024 * 1024
"""Bytes of such a file: a longer one is not ours."""


class StateFile:
    """One JSON object in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Any]:
        """The object; {} where there is none that can be read."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return {}
        try:
            record = json.loads(os.read(file, MOST))
        except (OSError, ValueError, RecursionError):
            return {}
        finally:
            os.close(file)
        return record if isinstance(record, dict) else {}

    def write(self, record: dict[str, Any]) -> None:
        """Replace the object; raises StateUnwritable."""
        fresh = self._path.with_name(f"{self._path.name}.new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            # What lies there may be of a run before, or a pipe of the agent's: to open that would wait for ever.
            fresh.unlink(missing_ok=True)
            file = os.open(fresh, flags, 0o600)
            with os.fdopen(file, "wb") as open_file:
                open_file.write(json.dumps(record).encode())
            fresh.replace(self._path)
        except OSError as error:
            raise StateUnwritable(
                f"{self._path.name} cannot be written: {error.strerror}"
            ) from error

    def remove(self) -> None:
        """Remove the file, if it is there."""
        self._path.unlink(missing_ok=True)
