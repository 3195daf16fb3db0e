"""What a person asks for about a workspace, checked before anything is made."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import Conflict, InvalidInput
from postroom.protocol.modes import COPY, DIRECT, WORKTREE
from postroom.sandbox.never import never_shown, real_name
from postroom.sandbox.port import FarProvider, SandboxProvider
from postroom.sandbox.template_check import search_path
from postroom.workers.reach import Reach
from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.layout import GIT, NotLent
from postroom.workers.workspaces.program import check_version
from postroom.workers.workspaces.records import FILE, Held
from postroom.workers.workspaces.repository import Repository, filtered, look

BRANCHES = "postroom/"
"""Before the nick in the name of a worker's branch."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A workspace that can be made.

    Attributes:
        folder: what to work on.
        repository: that gets the worker's branch, None for none.
    """

    folder: Path
    mode: str
    repository: Repository | None


async def plan(
    path: str, mode: str, provider: SandboxProvider, reach: Reach, *, state: Path, uid: str = ""
) -> Plan:
    """Check what a person asks for, and decide on the mode.

    Args:
        path: the folder.
        mode: how to work on it, "" for the usual.
        reach: what of the machine who asks may give a worker.
        state: the state folder of the post room, which no worker may see.
        uid: whose workspace it is, if a start of it was killed.

    Raises:
        InvalidInput: it cannot be worked on so; the remedy says how else.
        Forbidden: it is beyond `reach`.
        Conflict: another worker can write there what git goes by.
    """
    folder = Path(path)
    if not folder.is_absolute():
        raise InvalidInput(f"the workspace {path!r} is not an absolute path")
    await asyncio.to_thread(reach.refuse_named, path, mode)
    if not folder.is_dir():
        raise InvalidInput(f"the workspace {folder} is not a folder of this machine")
    folder = real_name(folder)
    reach.refuse_place(folder, mode)
    if isinstance(provider, FarProvider):
        raise InvalidInput(
            f"a folder of this machine cannot be worked on in a sandbox of {provider.name!r}, on another machine",
            remedy="choose a sandbox of this machine: --sandbox auto",
        )
    await asyncio.to_thread(refuse_never, folder, state, holding=False)
    _check_program()
    await check_version()
    repository = await _look(folder, mode, state)
    if repository is not None:
        reach.refuse_place(real_name(repository.top), mode)
        for place in (repository.common, *repository.lent):
            reach.refuse_place(real_name(place))
        await asyncio.to_thread(_refuse_replaced, repository, state, uid)
    chosen = mode or (WORKTREE if repository else COPY)
    if chosen == WORKTREE:
        return Plan(folder, chosen, await _worktree(folder, repository))
    await asyncio.to_thread(refuse_never, folder, state)
    if chosen == COPY:
        return Plan(folder, chosen, await _copy(folder, repository))
    await asyncio.to_thread(_direct, folder, repository, provider, state, uid)
    return Plan(folder, chosen, repository)


async def _look(folder: Path, mode: str, state: Path) -> Repository | None:
    try:
        return await look(folder, state)
    except NotLent:
        if mode != COPY:
            raise
        return None  # its files can be had


def _check_program() -> None:
    import sys

    if not any(Path(place, "git").exists() for place in search_path(sys.executable).split(":")):
        raise InvalidInput(
            "no git can be shown to a sandbox: it looks in /usr/local/bin and /usr/bin",
            remedy="install git with the system's packages",
        )


async def _worktree(folder: Path, repository: Repository | None) -> Repository:
    if repository is None:
        raise InvalidInput(f"{folder} is in no git repository", remedy="work on a copy: --as copy")
    await check_branches(repository.git)
    return repository


async def check_branches(git: Git) -> None:
    """Refuse a repository with a branch in whose place the workers' branches would be."""
    name = BRANCHES.rstrip("/")
    if await git.value(f"refs/heads/{name}"):
        raise InvalidInput(
            f"the repository has a branch called {name}, so it can have none called {BRANCHES}NICK",
            remedy=f"git branch -m {name} another-name",
        )


async def _copy(folder: Path, repository: Repository | None) -> Repository | None:
    if repository is None or folder != repository.top.resolve():
        return None  # a folder of a repository is no repository itself
    await check_branches(repository.git)
    sparse = (await repository.git.repo()).settings.on("core.sparsecheckout")
    if sparse or (repository.head and await filtered(repository.git, repository.head)):
        why = "is a sparse checkout" if sparse else "has files that git filters (LFS)"
        raise InvalidInput(
            f"{folder} {why}: a branch of a copy would change them",
            remedy="commit, and work on a branch: --as worktree",
        )
    return repository


def _direct(
    folder: Path, repository: Repository | None, provider: SandboxProvider, state: Path, uid: str
) -> None:
    if not provider.covers:
        raise InvalidInput(
            f"the sandbox {provider.name!r} cannot keep {folder}/.git from being written",
            remedy="work on a branch (--as worktree), or in a sandbox that is enforced",
        )
    if repository is not None and folder != repository.top.resolve():
        raise InvalidInput(
            f"{folder} is a folder of the repository {repository.top}",
            remedy=f"--workspace {repository.top}",
        )
    if Path(tempfile.gettempdir()).resolve().is_relative_to(folder):
        raise InvalidInput(
            f"temporary files of Postroom's are in {folder} (TMPDIR), git's settings among them",
            remedy="work on a branch or a copy, or start the post room with another TMPDIR",
        )
    for held in others(state, uid):
        other = Path(held.path)
        if held.mode == DIRECT and (folder.is_relative_to(other) or other.is_relative_to(folder)):
            raise Conflict(
                f"another worker works itself in {folder}, or in a folder around or inside of it",
                remedy="remove it first, or work on a branch: --as worktree",
            )
        places = [Path(held.top, GIT), *map(Path, held.lent or ())] if held.top else []
        if any(_replaced(place, folder) for place in places):
            raise Conflict(
                f"another worker works on a repository inside of {folder}",
                remedy="remove it first, or work on a branch: --as worktree",
            )


def _refuse_replaced(repository: Repository, state: Path, uid: str) -> None:
    """Refuse a git directory that another worker could replace, between any look at it and its use."""
    places = (real_name(repository.top) / GIT, repository.common, *repository.lent)
    for held in others(state, uid):
        if held.mode == DIRECT and any(_replaced(place, Path(held.path)) for place in places):
            raise Conflict(
                f"another worker works itself in a folder around what git keeps of {repository.top}",
                remedy="remove it first, or name that folder",
            )


def _replaced(place: Path, folder: Path) -> bool:
    """Whether who works in `folder` itself can move `place`: all of it but the `.git` right in there."""
    return place.is_relative_to(folder) and not place.is_relative_to(folder / GIT)


def others(state: Path, uid: str) -> Iterator[Held]:
    """The workspaces of all organisations but that of `uid`; a worker that is removed has none."""
    for home in (state, *(state / "orgs").glob("*")):
        for record in home.glob(f"workers/*/{FILE}"):
            if record.parent.name != uid and (held := Held.load(record.parent)) is not None:
                yield held


def refuse_never(folder: Path, state: Path, *, holding: bool = True) -> None:
    """Refuse a folder that no worker gets, whoever asks.

    Args:
        folder: by its real name.
        holding: also what has such a folder in it; a branch shows the repository's objects alone.

    Raises:
        InvalidInput: with the reason.
    """
    if reason := never_shown(folder, (state,), holding=holding):
        raise InvalidInput(
            f"no worker gets {folder}: {reason}", remedy="name a folder of plain files"
        )
