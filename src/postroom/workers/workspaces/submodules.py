"""The submodules of a person's repository whose objects are on this machine, so that a worker can be lent them.

Git keeps them in `modules/NAME` of the git directory. What `.gitmodules` of a commit says is a stranger's word: only
names and paths are read of it, never an address or a command, and a name counts only if the repository there names the
path as the folder of its files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

from postroom.errors import PostroomError
from postroom.sandbox.never import never_shown
from postroom.workers.workspaces import config
from postroom.workers.workspaces.git import Git, known
from postroom.workers.workspaces.layout import NotLent, module, objects, shallow
from postroom.workers.workspaces.program import GitFailed
from postroom_a2a.text import printable

DEEPEST = 4
"""Submodules of submodules."""
MOST = 32
GITLINK = "160000 commit"


@dataclass(frozen=True, slots=True)
class Module:
    """A submodule that a worker can be lent.

    Attributes:
        name: as `.gitmodules` has it.
        path: from the repository's folder.
        folder: its git directory, from that of the repository.
        holder: the git directory of the repository that it is a submodule of, likewise; "" for the repository.
        commit: that is recorded.
        objects: its objects, and those that it borrows itself.
        shallow: the commits whose parents it has not got.
    """

    name: str
    path: str
    folder: str
    holder: str
    commit: str
    objects: tuple[Path, ...]
    format: str
    shallow: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Modules:
    """The submodules of a commit.

    Attributes:
        found: those that can be lent, each before those inside of it.
        missing: the paths of the others.
    """

    found: tuple[Module, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def objects(self) -> tuple[Path, ...]:
        """Their folders of objects."""
        return tuple(place for module in self.found for place in module.objects)


def lendable(store: Path, state: Path) -> list[Path]:
    """A folder of objects and those that it borrows from, if a sandbox may be shown all of them.

    Raises:
        NotLent: it may not.
    """
    places = objects(store)
    for place in places:
        if reason := never_shown(place, (state,)):
            raise NotLent(
                f"the repository has objects in {place}, which no sandbox is shown: {reason}",
                remedy="look at its objects/info/alternates; or work on a copy: --as copy",
            )
    return places


async def modules(git: Git, commit: str, state: Path) -> Modules:
    """The submodules of a commit, and those of theirs.

    Args:
        commit: "" for none.
        state: the state folder of the post room, which no sandbox is shown.
    """
    found: list[Module] = []
    missing: list[str] = []
    if commit:
        async for each in _below(git, commit, state, None, 0):
            if len(found) + len(missing) >= MOST:
                break
            if isinstance(each, Module):
                found.append(each)
            else:
                missing.append(each)
    return Modules(tuple(found), tuple(missing))


async def _below(
    git: Git, commit: str, state: Path, within: Module | None, depth: int
) -> AsyncGenerator[Module | str]:
    layout = (await git.repo()).layout
    for name, path, recorded in await _listed(git, commit):
        whole = f"{within.path}/{path}" if within else path
        try:
            place = await asyncio.to_thread(module, layout, name, path)
            inner = Git(place.top, await known(place)) if place else None
            mine = await _module(inner, name, whole, recorded, state, within) if inner else None
        except (PostroomError, OSError):
            inner = mine = None
        if inner is None or mine is None:
            yield whole
            continue
        yield mine
        if depth < DEEPEST:
            async for each in _below(inner, recorded, state, mine, depth + 1):
                yield each


async def _module(
    git: Git, name: str, path: str, commit: str, state: Path, within: Module | None
) -> Module | None:
    """The submodule, None if it has not got the commit."""
    repo = await git.repo()
    if await git.line("cat-file", "-t", commit) != "commit":
        return None
    places = tuple(await asyncio.to_thread(lendable, repo.store, state))
    commits = await asyncio.to_thread(shallow, repo.layout.folder)
    holder = within.folder if within else ""
    folder = f"{holder}/modules/{name}".lstrip("/")
    return Module(name, path, folder, holder, commit, places, repo.format, commits)


async def _listed(git: Git, commit: str) -> list[tuple[str, str, str]]:
    """Name, path and recorded commit of the submodules of a commit."""
    if not (await git.line("ls-tree", commit, ".gitmodules")).startswith("100644 blob "):
        return []
    words = ("config", f"--blob={commit}:.gitmodules", "--no-includes", "-z", "--list")
    try:
        settings = config.parsed(await git.run(*words, stranger=True))
    except GitFailed:
        return []
    keys = [
        key for key, _ in settings.pairs if key.startswith("submodule.") and key.endswith(".path")
    ]
    names = [key.removeprefix("submodule.").removesuffix(".path") for key in dict.fromkeys(keys)]
    said = {name: settings.get(f"submodule.{name}.path") for name in names[:MOST]}
    paths = {name: path for name, path in said.items() if _plain(name) and _plain(path)}
    if not paths:
        return []
    literal = {"GIT_LITERAL_PATHSPECS": "1"}
    listed = await git.run("ls-tree", "-z", commit, "--", *paths.values(), env=literal)
    entries = (line.partition("\t") for line in listed.decode(errors="surrogateescape").split("\0"))
    links = {
        path: entry.removeprefix(GITLINK).strip()
        for entry, _, path in entries
        if entry.startswith(GITLINK)
    }
    return [(name, path, links[path]) for name, path in paths.items() if path in links]


def _plain(name: str) -> bool:
    """Whether it can be a name or a path of a submodule: relative, and never out of where it belongs."""
    parts = name.split("/")
    fine = all(part not in ("", ".", "..") and part.casefold() != ".git" for part in parts)
    return fine and not name.startswith("-") and "\\" not in name and printable(name) == name
