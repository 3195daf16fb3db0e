"""What removed workers have left in the state folder, and as branches of one repository: found, and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import InvalidInput
from postroom.sandbox.never import real_name
from postroom.workers.leftovers import Leftover, delete
from postroom.workers.lifecycle import Workers
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


async def stale_branches(git: Git, live: Collection[str]) -> list[Stale]:
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


async def delete_branches(git: Git, branches: Collection[Stale]) -> list[Stale]:
    """Delete branches that are still where they were; returns them."""
    gone: list[Stale] = []
    for branch in branches:
        try:
            await git.run("update-ref", "--no-deref", "-d", f"{HEADS}{branch.name}", branch.commit)
        except GitFailed:
            continue  # it has moved just now: somebody needs it
        gone.append(branch)
    return gone


@dataclass(frozen=True, slots=True)
class Left:
    """What removed workers have left.

    Attributes:
        folders: each with the nick of its worker, and what of it is nowhere else.
        branches: of the repository that was named.
    """

    folders: list[tuple[Leftover, str, tuple[str, ...]]]
    branches: list[Stale]


async def left(workers: Workers, repository: str, by: str) -> Left:
    """What removed workers have left, also in `repository`, if it is not "".

    Raises:
        Forbidden: it is beyond the reach of `by`.
        InvalidInput: it is none.
    """
    return await _left(workers, await _git(workers, repository, by) if repository else None)


async def _left(workers: Workers, git: Git | None) -> Left:
    branches: list[Stale] = []
    if git is not None:
        branches = await stale_branches(git, await workers.work.spaces.branches())
    folders = [(each, nick, workers.work.unsaved(each.uid)) for each, nick in await workers.left()]
    return Left(folders, branches)


async def tidy(workers: Workers, repository: str, by: str, named: Collection[str]) -> Left:
    """Delete what is merged or nobody needs, in `repository` and in the state folder; returns what it was.

    Args:
        named: commits that nothing else has, and uids of workers with unsaved files, to delete nevertheless.
    """
    git = await _git(workers, repository, by)
    found = await _left(workers, git)
    folders = [each for each in found.folders if not each[2] or each[0].uid in named]
    branches = [each for each in found.branches if each.merged or each.commit in named]
    gone = await delete_branches(git, branches)
    for each, _, unsaved in folders:
        if unsaved:
            await workers.work.spaces.forget(each.uid)
        await asyncio.to_thread(delete, each.folder)
    return Left(folders, gone)


async def _git(workers: Workers, repository: str, by: str) -> Git:
    """Git on a repository of a person, judged as for a worker on a branch of it."""
    folder = Path(repository)
    if not folder.is_absolute():
        raise InvalidInput(f"the repository {repository!r} is not an absolute path")
    reach = await workers.work.reach(by)
    await asyncio.to_thread(reach.refuse_named, repository)
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is not a folder of the post room's machine")
    found = await workers.work.spaces.repository(real_name(folder))
    for place in (found.top, found.common, *found.objects):
        reach.refuse_place(real_name(place))
    return found.git
