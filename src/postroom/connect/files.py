"""Files of coding agents on disk: read whole, replaced whole, and never one that somebody else changed meanwhile."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from postroom import disk
from postroom.errors import Conflict, EnvironmentFault, InvalidInput, StateUnwritable

MAX_BYTES = 8 << 20
_READING = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
"""A named pipe would have the reader wait for a writer."""

TRIES = 8
"""Times that a change is made anew since somebody else wrote the file meanwhile."""


def content_of(path: Path) -> bytes | None:
    """The content of a file of this user, None for no file.

    Raises:
        InvalidInput: it is no regular file, or too large to be one that `connect` changes.
        EnvironmentFault: it cannot be read.
    """
    try:
        with os.fdopen(os.open(path, _READING), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidInput(f"{path} is not a regular file")
            content = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise EnvironmentFault(f"cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise InvalidInput(f"{path} has more than {MAX_BYTES} bytes")
    return content


def check_folder(folder: Path) -> None:
    """Refuse a folder, or the nearest one above it that there is, that belongs to another user.

    Raises:
        EnvironmentFault: it does, or it is no folder.
    """
    near = next(each for each in (folder, *folder.parents) if each.exists())
    found = near.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise EnvironmentFault(f"{near} is not a folder")
    if found.st_uid != os.geteuid():
        raise EnvironmentFault(
            f"{near} belongs to another user", remedy="run this as the user whose folder it is"
        )


def make_folders(folder: Path) -> list[Path]:
    """Make the folder and what it lacks above it; returns those that are new, the outermost first.

    Raises:
        StateUnwritable: the disk is full or read-only.
    """
    new = [each for each in (folder, *folder.parents) if not each.exists()][::-1]
    for number, each in enumerate(new):
        try:
            each.mkdir(mode=0o700)
        except OSError as error:
            remove_empty(new[:number])
            raise StateUnwritable(f"cannot make {each}: {error.strerror}") from error
    return new


def remove_empty(folders: Sequence[Path]) -> list[Path]:
    """Remove those of the folders, the outermost first, that are empty; returns the others that are still there."""
    for folder in reversed(folders):
        with suppress(OSError):
            folder.rmdir()
    return [folder for folder in folders if folder.is_dir()]


def change(path: Path, make: Callable[[bytes | None], bytes | None]) -> bytes | None:
    """Replace a file, or its link's target, by what `make` makes of it, which may be called again; None removes it.

    Mode, owner and extended attributes stay. The file is read again right before it is replaced: one that a client
    writes meanwhile is changed anew.

    Returns:
        What it replaced.

    Raises:
        Conflict: somebody keeps writing the file, or it has several names.
        StateUnwritable: the disk is full or read-only.
    """
    target = _target(path)
    for _ in range(TRIES):
        old = content_of(target)
        new = make(old)
        if new == old:
            return old
        try:
            done = _removed(target, old) if new is None else _replaced(target, old, new)
        except OSError as error:
            raise StateUnwritable(f"cannot write {path}: {error.strerror}") from error
        if done:
            return old
    raise Conflict(f"somebody keeps writing {path}", remedy="end the programs that use it")


def _target(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise EnvironmentFault(f"{path} is a link that leads nowhere: {error}") from error


def _removed(target: Path, old: bytes | None) -> bool:
    if content_of(target) != old:
        return False
    target.unlink()
    return True


def _replaced(target: Path, old: bytes | None, new: bytes) -> bool:
    """Whether the file still was `old` when `new` took its place."""
    found = target.stat() if old is not None else None
    if found is not None and found.st_nlink > 1:
        raise Conflict(
            f"{target} is one file under {found.st_nlink} names, and writing it would part them",
            remedy="make it a symbolic link, or add the lines by hand: --print",
        )
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(new)
            file.flush()
            os.fsync(file.fileno())
        if found is not None:
            shutil.copystat(target, temporary)
            os.utime(temporary)
            if (found.st_uid, found.st_gid) != _owner(temporary):
                os.chown(temporary, found.st_uid, found.st_gid)
        if content_of(target) != old:
            return False
        Path(temporary).replace(target)
    finally:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()
    disk.sync(target.parent)  # the rename itself
    return True


def _owner(path: str) -> tuple[int, int]:
    found = Path(path).stat()
    return found.st_uid, found.st_gid
