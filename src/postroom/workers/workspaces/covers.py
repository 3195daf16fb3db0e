"""Git directories in a folder that a worker writes itself: those that are there are kept from it, new ones are noticed.

Whoever can write a git directory decides what the next git command in it runs. Files that lend an account are noticed
likewise.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from postroom.errors import InvalidInput
from postroom.workers.workspaces import plain
from postroom.workers.workspaces.layout import GIT, GUARD, is_guard, looks_like

MOST_FOLDERS = 200_000
"""Folders that are looked at; a larger tree is refused, since a git directory could hide in it."""
SET_ID = stat.S_ISUID | stat.S_ISGID
MOST_ENTRIES = 500_000
"""Entries of a folder that are looked at for the bits of `SET_ID`: a second or two."""


def found(top: Path) -> list[str]:
    """All entries called `.git` below `top`, and all folders that git takes for git directories, never through a link.

    Folders that cannot be looked into count, too. They are relative to it; `top` itself is ".".

    Raises:
        InvalidInput: it has too many folders.
    """
    names: list[str] = []

    def shut(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError | NotADirectoryError):
            names.append(str(Path(error.filename).relative_to(top)))

    for count, (place, folders, files) in enumerate(os.walk(top, onerror=shut)):
        if count > MOST_FOLDERS:
            raise InvalidInput(
                f"{top} has over {MOST_FOLDERS} folders, too many to guard",
                remedy="work on a branch: --as worktree",
            )
        entries = (*folders, *files)
        names += [
            str(Path(place, name).relative_to(top)) for name in entries if name.casefold() == GIT
        ]
        if looks_like(entries):
            names.append(str(Path(place).relative_to(top)))
            if Path(place) != top:
                folders.clear()
        folders[:] = [name for name in folders if name.casefold() != GIT]
    return names


def covered(top: Path, places: Iterable[Path], *, repository: bool) -> tuple[str, ...]:
    """What the worker may not write in `top`; a `.git` that stands for none is made where there is none.

    Args:
        places: what else decides what git runs, such as the folder of the repository's hooks.
        repository: `top` is one.

    Raises:
        InvalidInput: one of them is a link.
    """
    if not repository:
        _guard(top)
    names = [name for name in found(top) if name != "."]
    for place in places:
        real = place.resolve()
        if real.exists() and real.is_relative_to(top) and real != top:
            names.append(str(real.relative_to(top)))
    names = [name for name in names if os.path.lexists(top / name)]
    for name in names:
        if (top / name).is_symlink():
            raise InvalidInput(
                f"{top / name} is a link, which a worker could replace",
                remedy="work on a branch: --as worktree",
            )
    return tuple(sorted(set(names)))


def refuse_deep(top: Path) -> None:
    """Raise InvalidInput if a folder is too deep to be looked into, and so to be kept from a worker."""
    for name in found(top):
        if not os.path.lexists(top / name):
            raise InvalidInput(
                f"{top} has folders that are too deep to be looked into: {name[:100]}",
                remedy="work on a branch: --as worktree",
            )


def _guard(top: Path) -> None:
    """Keep git from finding anything in a folder that has no repository.

    An empty `.git` does not: git goes on to see whether the folder is a git directory itself, and a worker could make
    it one.
    """
    place = top / GIT
    if plain.is_folder(place):
        try:
            place.rmdir()
        except OSError as error:
            raise InvalidInput(
                f"{place} is no git directory, and not empty", remedy="remove it"
            ) from error
    if not os.path.lexists(place):
        place.write_text(GUARD)


def marks(top: Path, names: Iterable[str]) -> tuple[str, ...]:
    """The names, each with what it is on the disk: another one at its place has another mark."""
    return tuple(f"{_number(top / name)} {name}" for name in names)


def _number(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except OSError:
        return 0  # the worker took it away just now: it is none of those that were there


def uncover(top: Path) -> None:
    """Remove the `.git` that stood for none."""
    if is_guard(top / GIT):
        (top / GIT).unlink(missing_ok=True)


def lending(top: Path, most: int = MOST_ENTRIES) -> list[str]:
    """The files below `top` that lend their owner's account, or capabilities, to whoever runs them, relative to it.

    What cannot be looked at is named, too: a folder deeper than a path can say, one that its owner closed, and what
    lies beyond the first `most` entries.
    """
    found, shut = _lending(top, most)
    return found + shut


def lent(top: Path) -> tuple[str, ...]:
    """The files of `lending` alone: who can write one keeps its bits, by a memory map (mmap(2))."""
    return tuple(_lending(top, MOST_ENTRIES)[0])


def _lending(top: Path, most: int) -> tuple[list[str], list[str]]:
    """The names of such files, and sentences about what could not be looked at."""
    found: list[str] = []
    shut: list[str] = []
    ahead, looked = [str(top)], 0
    while ahead and looked < most:
        place = ahead.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    looked += 1
                    mode = _mode(entry)
                    if stat.S_ISDIR(mode):
                        ahead.append(entry.path)
                    elif stat.S_ISREG(mode) and (mode & SET_ID or _capable(entry.path, mode)):
                        found.append(str(Path(entry.path).relative_to(top)))
        except (FileNotFoundError, NotADirectoryError):
            continue  # the worker took it away just now
        except OSError as error:
            shut.append(f"{Path(place).relative_to(top)} ({error.strerror})")
    if ahead:
        shut.append(f"what lies beyond {most} entries")
    return found, shut


def _capable(path: str, mode: int) -> bool:
    """Whether a program has capabilities of its own, which only root can give and macOS has not got."""
    if os.geteuid() != 0 or not mode & 0o111 or sys.platform != "linux":
        return False
    try:
        return "security.capability" in os.listxattr(path, follow_symlinks=False)
    except OSError:
        return False


def _mode(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0
