"""What a session works on: the repository of its folder, and the nick that follows from it."""

from __future__ import annotations

import re
from pathlib import Path

MOST = 64
"""Folders above the session's that are looked at."""

LONGEST = 48
"""Characters of a nick: a number may follow it."""


def project_of(folder: str) -> str:
    """The common git folder of a folder's repository, which all of its worktrees have; "" for none."""
    place = Path(folder)
    for above in (place, *list(place.parents)[:MOST]):
        git = above / ".git"
        try:
            if git.is_dir():
                return str(git.resolve())
            if git.is_file():
                return str(_common(above, _beginning(git)))
        except OSError:
            return ""
    return ""


def nick_of(folder: str, project: str) -> str:
    """A nick by the repository, else by the folder."""
    place = Path(project).parent if project else Path(folder)
    stem = place.name if not project or Path(project).name == ".git" else Path(project).stem
    word = re.sub(r"[^a-z0-9_-]+", "-", stem.lower()).strip("-_")
    return word[:LONGEST].rstrip("-_") or "session"


def _beginning(path: Path) -> str:
    """The beginning of a file that may be of any size."""
    with path.open(errors="replace") as file:
        return file.read(4096)


def _common(above: Path, said: str) -> Path:
    """Where the file `.git` of a worktree, or of a submodule, leads."""
    git = (above / said.partition("gitdir:")[2].strip()).resolve()
    try:
        return (git / _beginning(git / "commondir").strip()).resolve()
    except OSError:
        return git
