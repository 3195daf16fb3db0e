"""Git directories in a folder that a worker writes itself: those that are there are kept from it, new ones are noticed.

Whoever can write a git directory decides what the next git command in it runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from postroom.errors import InvalidInput

GIT = ".git"
MOST_FOLDERS = 200_000
"""Folders that are looked at; a larger tree is refused, since a git directory could hide in it."""


def found(top: Path) -> list[str]:
    """All entries called `.git` below `top`, relative to it, never through a link.

    Raises:
        InvalidInput: it has too many folders.
    """
    names: list[str] = []
    for count, (place, folders, files) in enumerate(os.walk(top)):
        if count > MOST_FOLDERS:
            raise InvalidInput(
                f"{top} has over {MOST_FOLDERS} folders, too many to guard",
                remedy="work on a branch: --as worktree",
            )
        here = [name for name in (*folders, *files) if name.casefold() == GIT]
        names += [str(Path(place, name).relative_to(top)) for name in here]
        folders[:] = [name for name in folders if name.casefold() != GIT]
    return names


def covered(top: Path, hooks: str) -> tuple[str, ...]:
    """What the worker may not write in `top`; an empty `.git` is made where there is none.

    Args:
        hooks: folder of the repository's hooks (`core.hooksPath`), "" for the usual one.

    Raises:
        InvalidInput: one of them is a link.
    """
    if not os.path.lexists(top / GIT):
        # Without it the worker could make one. Git takes no notice of an empty folder.
        (top / GIT).mkdir()
    names = found(top)
    if hooks:
        place = (top / hooks).resolve()
        if place.is_dir() and place.is_relative_to(top) and place != top:
            names.append(str(place.relative_to(top)))
    for name in names:
        if (top / name).is_symlink():
            raise InvalidInput(
                f"{top / name} is a link, which a worker could replace",
                remedy="work on a branch: --as worktree",
            )
    return tuple(sorted(set(names)))


def marks(top: Path, names: Iterable[str]) -> tuple[str, ...]:
    """The names, each with what it is on the disk: another one at its place has another mark."""
    return tuple(f"{_number(top / name)} {name}" for name in names)


def _number(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except OSError:
        return 0  # the worker took it away just now: it is none of those that were there


def uncover(top: Path) -> None:
    """Remove the empty `.git` that stood for none."""
    try:
        (top / GIT).rmdir()
    except OSError:
        return  # it is a real one, or gone
