"""What a worker changed, as the repository that has its work knows it; its folder is not looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.records import Held

MOST_TEXT = 4 << 20
"""Bytes of a diff that are shown."""

LONGEST_FILE = 10_000_000
"""Lines around a change that are all of a file."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What a worker changed since it began.

    Attributes:
        text: as `git diff` prints it, without colours.
        cut: whether there is more than `text`.
    """

    text: str
    cut: bool
    files: int
    commits: int


async def difference(
    git: Git, held: Held, paths: Sequence[str] = (), *, stat: bool = False, whole: bool = False
) -> Difference:
    """The difference between the commit that the worker began from and its newest work.

    Args:
        paths: only these files and folders, relative to the repository, as they stand.
        stat: only the names and the numbers of lines.
        whole: all lines of the files, also those that are far from a change.
    """
    base = held.base or await git.empty_tree()
    words = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--src-prefix=a/")
    form = ("--stat=100",) if stat else (f"--unified={LONGEST_FILE}",) if whole else ()
    named = (base, held.brought or base, "--", *paths)
    literal = ("--literal-pathspecs", "diff", *words, "--dst-prefix=b/")
    text = await git.run(*literal, *form, *named, stranger=True, most=MOST_TEXT + 1)
    names = await git.run(*literal, "--name-only", "-z", *named, stranger=True)
    since = held.base if held.began not in (None, held.base) else held.head
    counted = f"{since}..{held.brought}" if since else held.brought
    commits = await git.line("rev-list", "--count", counted) if held.brought else "0"
    shown = text[:MOST_TEXT].decode(errors="replace")
    return Difference(shown, len(text) > MOST_TEXT, names.count(b"\0"), int(commits or 0))


def command(held: Held) -> str:
    """The command by which a person takes over the work of a worker, "" if there is none to take."""
    if not held.branch or held.brought == held.base:
        return ""
    return f"git merge {held.branch}"
