"""What a worker changed, as the repository that has its work knows it; its folder is not looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from postroom.workers.workspaces.branches import contains
from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.records import Held

MOST_TEXT = 4 << 20
"""Bytes of a diff that are shown."""
# Neither settings nor attributes choose a program for it (`program`), and no path is a pattern.
_DIFF = (
    *("--literal-pathspecs", "diff", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--submodule=short", "--src-prefix=a/", "--dst-prefix=b/"),
)

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
    form = ("--stat=100",) if stat else (f"--unified={LONGEST_FILE}",) if whole else ()
    named = (base, held.brought or base, "--", *paths)
    text = await git.run(*_DIFF, *form, *named, stranger=True, most=MOST_TEXT + 1)
    names = await git.run(*_DIFF, "--name-only", "-z", *named, stranger=True)
    since = held.base if held.began not in (None, held.base) else held.head
    counted = f"{since}..{held.brought}" if since else held.brought
    commits = await git.line("rev-list", "--count", counted) if held.brought else "0"
    shown = text[:MOST_TEXT].decode(errors="replace")
    return Difference(shown, len(text) > MOST_TEXT, names.count(b"\0"), int(commits or 0))


@dataclass(frozen=True, slots=True)
class Joined:
    """A merge that a worker's agent made after a conflict.

    Attributes:
        commit: the newest work, with what its agent did since.
        onto: the person's newest commit that it has.
        before: the worker's work before the merge.
        text: how `commit` differs from both, as `git diff --cc` prints it.
        cut: whether there is more than `text`.
    """

    commit: str
    onto: str
    before: str
    text: str
    cut: bool


async def unseen(git: Git, held: Held) -> bool:
    """Whether its newest work has such a merge, and no person has said that it counts."""
    return bool(held.joining and held.brought) and await contains(
        git, held.brought, held.joining[0]
    )


async def joined(git: Git, held: Held) -> Joined | None:
    """The merge that does not count yet, None for none.

    All that was done since is in it, too: whatever its history says, the files are compared with those of both sides.
    """
    if not await unseen(git, held):
        return None
    onto, before = held.joining
    if held.base and await contains(git, held.base, onto):
        onto = held.base  # its agent has taken a newer one
    both = (held.brought, onto, before or await git.empty_tree())
    text = await git.run(*_DIFF, "--cc", *both, "--", stranger=True, most=MOST_TEXT + 1)
    shown = text[:MOST_TEXT].decode(errors="replace")
    return Joined(held.brought, onto, before, shown, len(text) > MOST_TEXT)


def command(held: Held) -> str:
    """The command by which a person takes over the work of a worker, "" if there is none to take."""
    if not held.branch or held.brought == held.base:
        return ""
    return f"git merge {held.branch}"
