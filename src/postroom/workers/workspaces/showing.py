"""What a worker changed, shown and merged in the repository that has its work; its folder is not looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import Conflict, InvalidInput
from postroom.protocol.modes import DIRECT
from postroom.workers.workspaces.git import Git, GitFailed
from postroom.workers.workspaces.records import Held
from postroom.workers.workspaces.repository import filters

MOST_TEXT = 4 << 20
"""Bytes of a diff that are shown."""

LFS = {
    "filter.lfs.clean": "git-lfs clean -- %f",
    "filter.lfs.smudge": "git-lfs smudge -- %f",
    "filter.lfs.process": "git-lfs filter-process",
}
"""Filters that do the same whatever a branch brings."""


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
    git: Git, held: Held, paths: Sequence[str] = (), *, stat: bool = False
) -> Difference:
    """The difference between the commit that the worker began from and its newest work.

    Args:
        paths: only these files and folders, relative to the repository, as they stand.
        stat: only the names and the numbers of lines.
    """
    base = held.base or (await git.run("hash-object", "-t", "tree", "/dev/null")).decode().strip()
    words = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--src-prefix=a/")
    form = ("--stat=100",) if stat else ()
    named = (base, held.brought or base, "--", *paths)
    literal = ("--literal-pathspecs", "diff", *words, "--dst-prefix=b/")
    text = await git.run(*literal, *form, *named, stranger=True, most=MOST_TEXT + 1)
    names = await git.run(*literal, "--name-only", "-z", *named, stranger=True)
    counted = f"{held.head}..{held.brought}" if held.head else held.brought
    commits = await git.line("rev-list", "--count", counted) if held.brought else "0"
    shown = text[:MOST_TEXT].decode(errors="replace")
    return Difference(shown, len(text) > MOST_TEXT, names.count(b"\0"), int(commits or 0))


def command(held: Held) -> str:
    """The command by which a person takes over the work of a worker, "" if there is none to take."""
    if not held.branch or held.brought == held.base:
        return ""
    return f"git merge {held.branch}"


async def merge(git: Git, held: Held) -> str:
    """Merge the branch of a worker into what the person is on; returns the new commit.

    Raises:
        InvalidInput: there is nothing to merge.
        Conflict: the person has changes, is in the middle of something, or the merge needs them.
    """
    if not command(held):
        why = "its work is in the folder already" if held.mode == DIRECT else "it has no branch"
        raise InvalidInput(f"there is nothing to merge: {why}", remedy="postroom diff shows it")
    by_hand = f"git -C {held.top} merge {held.branch}"
    await _refuse_busy(git, held, by_hand)
    for name, value in (await filters(git)).items():
        if LFS.get(name) != value and name != "filter.lfs.required":
            raise Conflict(
                f"your git runs a program for {name}, which the worker's branch could have changed",
                remedy=f"look at the branch, then: {by_hand}",
            )
    words = ("merge", "--no-edit", "--no-verify", "--no-gpg-sign", "--no-autostash", "--no-stat")
    try:
        await git.run(*words, f"refs/heads/{held.branch}", "-m", f"Merge {held.branch}")
    except GitFailed as error:
        if await git.value("MERGE_HEAD"):
            await git.run("merge", "--abort")
            raise Conflict(
                f"{held.branch} conflicts with your work: nothing was merged", remedy=by_hand
            ) from error
        raise
    return await git.line("rev-parse", "HEAD")


async def _refuse_busy(git: Git, held: Held, by_hand: str) -> None:
    if not Path(held.top).is_dir():
        raise Conflict(f"the repository {held.top} has gone", remedy="put it back")
    for ref in ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD"):
        if await git.value(ref):
            raise Conflict(f"{held.top} is in the middle of a merge or rebase", remedy="end it")
    words = ("status", "--porcelain=v1", "-z", "--untracked-files=no", "--ignore-submodules=all")
    if await git.run(*words):
        raise Conflict(
            f"{held.top} has uncommitted changes", remedy=f"commit or stash them, then: {by_hand}"
        )
