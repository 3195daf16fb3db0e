"""The coding agent's home folder: it outlives restarts, and holds the agent's sessions and its configuration.

The agent writes there, too. So nothing is written through a link that it may have made: each folder on the way is
opened without following one, and a file is replaced, never opened for writing. The same holds for the small files of
the sidecar's state folder (`StateFile`), which outlive its SIGKILL: the agent can write that folder, too.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from postroom.errors import StateUnwritable

HOME = "home"
"""Its name in the state folder."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_home(state: Path) -> Path:
    """The home folder, made if it is missing; raises StateUnwritable."""
    home = state / HOME
    try:
        home.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(home, _FOLDER))
    except OSError as error:
        raise StateUnwritable(f"the home folder cannot be made: {error.strerror}") from error
    return home


def write_files(home: Path, files: Mapping[str, str]) -> None:
    """Write files below the home folder, in place of what is there.

    Raises:
        StateUnwritable: a path leads out of it or over a link, or cannot be written.
    """
    for name, content in files.items():
        try:
            _write(home, PurePosixPath(name), content.encode("utf-8", "replace"))
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise StateUnwritable(f"the agent's {name} cannot be written: {why}") from error


def _write(home: Path, path: PurePosixPath, content: bytes) -> None:
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError("it is not a path below the home folder")
    *folders, name = path.parts
    here = os.open(home, _FOLDER)
    try:
        for folder in folders:
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700, dir_fd=here)
            there = os.open(folder, _FOLDER, dir_fd=here)
            os.close(here)
            here = there
        fresh = f".{name}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(fresh, flags, 0o600, dir_fd=here), "wb") as file:
            file.write(content)
        os.replace(fresh, name, src_dir_fd=here, dst_dir_fd=here)
    finally:
        os.close(here)


MOST = 4 * 1024 * 1024
"""Bytes of such a file: a longer one is not ours."""


class StateFile:
    """One JSON object in a file, replaced whole; what cannot be read counts as absent."""

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
