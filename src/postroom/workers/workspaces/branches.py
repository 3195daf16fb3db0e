"""The refs of a worker in the repository that gets its work; none of a person's is ever forced.

refs/postroom/<uid>/base   what its work is compared with, kept from being collected as garbage
refs/postroom/<uid>/work   its newest commit that was brought back
refs/postroom/<uid>/next   where its files are being put
refs/postroom/<uid>/joined its work that its agent is to join with its person's
refs/postroom/<uid>/saved  its files after a kill in mid-way, if they were neither as before nor as after
refs/heads/postroom/<nick> the same for people, once there is any work
"""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath
from shlex import quote

from postroom.errors import Conflict
from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.layout import looks_like
from postroom.workers.workspaces.plan import BRANCHES
from postroom.workers.workspaces.program import GitFailed

MOST_NAMES = 100
LARGEST_TREE = 256 << 20
"""Bytes of the names of all files of a commit."""
_PARTS = ("HEAD", "commondir", "objects/**", "refs/**")


def base_ref(uid: str) -> str:
    """The ref of the commit that the work of `uid` is compared with."""
    return f"refs/postroom/{uid}/base"


def work_ref(uid: str) -> str:
    """The ref of the newest work of `uid`."""
    return f"refs/postroom/{uid}/work"


def next_ref(uid: str) -> str:
    """The ref of the commit at which the files of `uid` are being put."""
    return f"refs/postroom/{uid}/next"


def joined_ref(uid: str) -> str:
    """The ref of the work of `uid` that its agent is to join with its person's."""
    return f"refs/postroom/{uid}/joined"


def saved_ref(uid: str) -> str:
    """The ref of the files of `uid` that a kill left, where they were neither as before nor as after."""
    return f"refs/postroom/{uid}/saved"


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
    if now and now != before and not await contains(git, to, now):
        other = await free_name(git, nick)
        await git.set(f"refs/heads/{other}", to, "")
        return other, to
    layout = (await git.repo()).layout
    if now and (where := await asyncio.to_thread(layout.checked_out, ref)):
        raise Conflict(
            f"there is more work, and {name} is checked out in {where}",
            remedy=f"git -C {quote(where)} switch another branch, then do it again",
        )
    await git.set(ref, to, now)
    return name, to


async def contains(git: Git, newer: str, older: str) -> bool:
    """Whether `older` is `newer` or before it."""
    try:
        await git.run("merge-base", "--is-ancestor", older, newer)
    except GitFailed:
        return False
    return True


async def forget(place: Path, uid: str) -> None:
    """Delete the refs of a removed worker; its branch stays."""
    git = Git(place)
    for ref in (base_ref(uid), work_ref(uid), next_ref(uid), joined_ref(uid), saved_ref(uid)):
        await git.drop(ref)


async def git_directories(git: Git, base: str, top: str) -> list[str]:
    """The folders that git takes for git directories and that `top` brings over `base`, "." for all of it.

    Whoever goes to such a folder and runs git there runs what its `config` names.
    """
    names = [f":(glob,icase)**/{part}" for part in _PARTS]
    words = ("diff-tree", "-r", "--name-only", "-z", "--no-renames", "--diff-filter=d")
    since = base or await git.empty_tree()
    new = await git.run(*words, since, top, "--", *names, stranger=True, most=LARGEST_TREE)
    if not new:
        return []
    words = ("ls-tree", "-r", "-t", "-z", "--name-only", top)
    listed = await git.run(*words, stranger=True, most=LARGEST_TREE)
    return await asyncio.to_thread(_directories, new, listed)


def _directories(new: bytes, listed: bytes) -> list[str]:
    changed: set[PurePosixPath] = set()
    for name in new.decode(errors="surrogateescape").split("\0"):
        changed.update(PurePosixPath(name).parents)
    inside: dict[PurePosixPath, list[str]] = {}
    for name in listed.decode(errors="surrogateescape").split("\0"):
        path = PurePosixPath(name)
        if path.parent in changed:
            inside.setdefault(path.parent, []).append(path.name)
    return sorted(str(folder) for folder, names in inside.items() if looks_like(names))
