"""The coding agent's home folder: it outlives restarts, and holds the agent's sessions and its configuration.

The agent writes there, too. So nothing is written through a link that it may have made: each folder on the way is
opened without following one, and a file is replaced, never opened for writing.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

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
