"""Which build of Postroom this is: its version, and the commit of its source where that is known."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from postroom import __version__

NUMBER = __version__

COMMIT_FILE = "commit.txt"
"""Written beside this module when a distribution is built from a git checkout (`hatch_build.py`)."""

SHOWN = 10
"""Digits of a commit that are shown."""

_HERE = Path(__file__).resolve().parent
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def version() -> str:
    """The version for people: `0.1.0 (4c9f2e81aa)`, or `0.1.0` where no commit is known."""
    return named(NUMBER, commit())


def named(number: str, made_from: str) -> str:
    """A version and its commit as `version` writes them."""
    return f"{number} ({made_from[:SHOWN]})" if made_from else number


@cache
def commit() -> str:
    """The commit of the source that this process began with, "" if it is not known.

    It is read from files, since git runs what the settings of a repository say.
    """
    if _HERE.parent.name == "src":
        return of_checkout(_HERE.parents[1])
    return _as_hash(_read(_HERE / COMMIT_FILE))


def of_checkout(root: Path) -> str:
    """The commit at which a git checkout stands, "" where `root` is none."""
    git = root / ".git"
    link = _read(git).removeprefix("gitdir:").strip()  # a further worktree has a file in its place
    if link:
        git = root / link
    head = _read(git / "HEAD")
    if not head.startswith("ref:"):
        return _as_hash(head)
    name = head.removeprefix("ref:").strip()
    common = git / (_read(git / "commondir") or ".")
    return _as_hash(_read(common / name)) or _packed(common, name)


def _packed(common: Path, name: str) -> str:
    for line in _read(common / "packed-refs").splitlines():
        found, _, of = line.partition(" ")
        if of == name:
            return _as_hash(found)
    return ""


def _as_hash(text: str) -> str:
    return text if _HASH.fullmatch(text) else ""


def _read(path: Path) -> str:
    """The text of a small file without its last newline, "" if there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
