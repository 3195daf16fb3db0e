"""Branches in a person's repository of workers that are there no more."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass

from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.plan import BRANCHES
from postroom.workers.workspaces.program import GitFailed

HEADS = "refs/heads/"
OURS = f"{HEADS}{BRANCHES}"
MOST = 500
"""Branches that are looked at; the next time the next ones."""


@dataclass(frozen=True, slots=True)
class Stale:
    """A branch of a worker that is there no more.

    Attributes:
        name: of the branch.
        commit: that it is at.
        merged: another branch or a tag that has all of it, "" for none.
        commits: how many commits nothing else has.
    """

    name: str
    commit: str
    merged: str
    commits: int


async def stale(git: Git, live: Collection[str]) -> list[Stale]:
    """The branches below `postroom/` that belong to no worker.

    Args:
        live: the branches of workers; those of other post rooms are known by their refs.
    """
    form = "--format=%(objectname) %(refname)"
    listed = await git.lines("for-each-ref", form, f"--count={MOST}", OURS)
    theirs = set(await git.lines("for-each-ref", "--format=%(objectname)", "refs/postroom/*/work"))
    layout = (await git.repo()).layout
    found: list[Stale] = []
    for commit, _, ref in (line.partition(" ") for line in listed):
        name = ref.removeprefix(HEADS)
        used = name in live or commit in theirs
        if not used and not await asyncio.to_thread(layout.checked_out, ref):
            found.append(Stale(name, commit, *await _merged(git, commit)))
    return found


async def _merged(git: Git, commit: str) -> tuple[str, int]:
    words = ("--format=%(refname)", "--contains", commit, HEADS, "refs/remotes/", "refs/tags/")
    refs = [ref for ref in await git.lines("for-each-ref", *words) if not ref.startswith(OURS)]
    if refs:
        return refs[0].removeprefix("refs/").removeprefix("heads/").removeprefix("remotes/"), 0
    others = (f"--exclude={BRANCHES}*", "--branches", "--remotes", "--tags")
    return "", int(await git.line("rev-list", "--count", commit, "--not", *others) or 0)


async def delete(git: Git, branches: Collection[Stale]) -> list[Stale]:
    """Delete branches that are still where they were; returns them."""
    gone: list[Stale] = []
    for branch in branches:
        try:
            await git.run("update-ref", "--no-deref", "-d", f"{HEADS}{branch.name}", branch.commit)
        except GitFailed:
            continue  # it has moved just now: somebody needs it
        gone.append(branch)
    return gone
