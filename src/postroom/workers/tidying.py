"""What removed workers have left, in the state folder and in one repository: found, and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import InvalidInput
from postroom.sandbox.never import real_name
from postroom.workers.leftovers import Leftover, delete
from postroom.workers.lifecycle import Workers
from postroom.workers.workspaces import stale
from postroom.workers.workspaces.git import Git


@dataclass(frozen=True, slots=True)
class Left:
    """What removed workers have left.

    Attributes:
        folders: each with the nick of its worker, and what of it is nowhere else.
        branches: of the repository that was named.
    """

    folders: list[tuple[Leftover, str, tuple[str, ...]]]
    branches: list[stale.Stale]


async def left(workers: Workers, repository: str, by: str) -> Left:
    """What removed workers have left, also in `repository`, if it is not "".

    Raises:
        Forbidden: it is beyond the reach of `by`.
        InvalidInput: it is none.
    """
    return await _left(workers, await _git(workers, repository, by) if repository else None)


async def _left(workers: Workers, git: Git | None) -> Left:
    branches: list[stale.Stale] = []
    if git is not None:
        branches = await stale.stale(git, await workers.work.spaces.branches())
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
    gone = await stale.delete(git, branches)
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
