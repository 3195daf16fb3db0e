"""The refs of a worker in the repository that gets its work; none of a person's is ever forced.

refs/postroom/<uid>/base   what its work is compared with, kept from being collected as garbage
refs/postroom/<uid>/work   its newest commit that was brought back
refs/heads/postroom/<nick> the same for people, once there is any work
"""

from __future__ import annotations

from pathlib import Path

from postroom.errors import Conflict
from postroom.workers.workspaces.git import Git, GitFailed
from postroom.workers.workspaces.plan import BRANCHES

MOST_NAMES = 100


def base_ref(uid: str) -> str:
    """The ref of the commit that the work of `uid` is compared with."""
    return f"refs/postroom/{uid}/base"


def work_ref(uid: str) -> str:
    """The ref of the newest work of `uid`."""
    return f"refs/postroom/{uid}/work"


async def free_name(git: Git, nick: str) -> str:
    """A name for the branch of a new worker that no branch of the repository has."""
    for number in range(1, MOST_NAMES):
        name = f"{BRANCHES}{nick}" if number == 1 else f"{BRANCHES}{nick}-{number}"
        if not await git.value(f"refs/heads/{name}"):
            return name
    raise Conflict(
        f"the repository has {MOST_NAMES} branches called {BRANCHES}{nick}-N",
        remedy="delete those that you have merged",
    )


async def place(git: Git, name: str, to: str, before: str, nick: str) -> tuple[str, str]:
    """Give the worker's branch a new value.

    Args:
        before: the value that it was given last, "" for none.

    Returns:
        Name and value of the branch; another name if a person has put commits of their own on it.

    Raises:
        Conflict: a person is on the branch.
    """
    ref = f"refs/heads/{name}"
    now = await git.value(ref)
    if now == to:
        return name, to
    if now and now != before and not await _contains(git, to, now):
        other = await free_name(git, nick)
        await git.set(f"refs/heads/{other}", to, "")
        return other, to
    if now and (where := await _checked_out(git, ref)):
        raise Conflict(
            f"there is more work, and {name} is checked out in {where}",
            remedy=f"git -C {where} switch another branch, then do it again",
        )
    await git.set(ref, to, now)
    return name, to


async def _contains(git: Git, newer: str, older: str) -> bool:
    try:
        await git.run("merge-base", "--is-ancestor", older, newer)
    except GitFailed:
        return False
    return True


async def _checked_out(git: Git, ref: str) -> str:
    """The worktree that is on the branch, "" if none is."""
    where = ""
    for line in (
        (await git.run("worktree", "list", "--porcelain")).decode(errors="replace").splitlines()
    ):
        if line.startswith("worktree "):
            where = line.removeprefix("worktree ")
        if line == f"branch {ref}":
            return where
    return ""


async def forget(place: Path, uid: str) -> None:
    """Delete the refs of a removed worker; its branch stays."""
    git = Git(place)
    for ref in (base_ref(uid), work_ref(uid)):
        await git.drop(ref)
