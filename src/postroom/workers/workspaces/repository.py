"""A person's repository, as far as a worker's workspace depends on it.

Its submodules are lent to a worker where their objects are on this machine. Git keeps them in `modules/NAME` of the git
directory. What `.gitmodules` of a commit says is a stranger's word: only names and paths are read of it, never an
address or a command, and a name counts only if the repository there names the path as the folder of its files.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from postroom.errors import InvalidInput, PostroomError
from postroom.sandbox.never import never_shown
from postroom.workers.workspaces import program
from postroom.workers.workspaces.git import Git, known
from postroom.workers.workspaces.layout import NotLent, find, module, objects, shallow
from postroom.workers.workspaces.program import (
    GitFailed,
    Settings,
    settings_of_file,
    settings_of_person,
)
from postroom_a2a.text import printable

MOST_INCLUDED = 64
"""Files of settings that are looked at for further ones."""
FILTER = "filter=[^ ]"

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
        settings = program.parsed_settings(await git.run(*words, stranger=True))
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


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository that somebody wants a worker for.

    Attributes:
        top: its folder, with the files.
        common: its git directory; of a linked worktree, that of the repository.
        objects: its objects, and those that it borrows itself.
        head: the commit that the person is at, "" in a repository without one.
        format: of the names of its objects, `sha1` or `sha256`.
        shallow: the commits whose parents it has not got.
        git: git on it.
        modules: its submodules.
    """

    top: Path
    common: Path
    objects: tuple[Path, ...]
    head: str
    format: str
    shallow: tuple[str, ...]
    git: Git
    modules: Modules = field(default_factory=Modules)

    @property
    def lent(self) -> tuple[Path, ...]:
        """All folders of objects that a worker may be lent."""
        return tuple(dict.fromkeys((*self.objects, *self.modules.objects)))


async def look(folder: Path, state: Path, commit: str = "") -> Repository | None:
    """The repository that `folder` lies in, None if it lies in none.

    Args:
        state: the state folder of the post room.
        commit: whose submodules are meant, "" for the one that the person is at.

    Raises:
        InvalidInput: it is a bare one, or what git takes for one.
        NotLent: it cannot lend its objects, or borrows from a place that no worker is shown.
    """
    layout = await asyncio.to_thread(find, folder)
    if layout is None:
        return None
    repo = await known(layout)
    places = tuple(await asyncio.to_thread(lendable, repo.store, state))
    try:
        commits = await asyncio.to_thread(shallow, layout.common)
    except OSError as error:
        raise InvalidInput(f"cannot read {layout.common / 'shallow'}: {error.strerror}") from error
    git = Git(layout.top, repo)
    head = await git.line("rev-parse", "--verify", "-q", "HEAD^{commit}")
    inner = await modules(git, commit or head, state)
    return Repository(layout.top, layout.common, places, head, repo.format, commits, git, inner)


async def notes(repository: Repository, folder: Path) -> list[str]:
    """What a worker on a branch of its own has not got, in sentences for people."""
    found, git = [], repository.git
    if folder.resolve() != repository.top.resolve():
        found.append(
            f"{folder} is a folder of the repository {repository.top}: the worker has all of it"
        )
    own = await settings_of_person()
    if count := (await changed(git, own)).count(b"\0"):
        what = "1 uncommitted change is" if count == 1 else f"{count} uncommitted changes are"
        found.append(f"{what} not taken: commit first, or --as copy")
    if not repository.head:
        return [*found, "the repository has no commit yet"]
    settings = (await git.repo()).settings
    if settings.on("core.sparsecheckout"):
        found.append("your checkout is sparse: the worker has all files")
    if came := [module.path for module in repository.modules.found]:
        found.append(
            f"submodules come along, and what the worker does in them stays in its folder: {', '.join(came)}"
        )
    if missing := repository.modules.missing:
        there = f"git -C {quote(str(repository.top))} submodule update --init --recursive"
        found.append(
            f"submodules are empty for the worker, since they are not on this machine: {', '.join(missing)};"
            f" first: {there} {' '.join(map(quote, missing))}, then: postroom restart NICK"
        )
    if await filtered(git, repository.head):
        found.append("files that git filters, such as those of LFS, are pointers for the worker")
    return found


async def told(repository: Repository) -> list[str]:
    """What of the machine is lent beside the repository's folder, and which of the person's settings do nothing."""
    found = [
        f"it reads all that git keeps in {place}"
        for place in repository.lent
        if not place.is_relative_to(repository.top)
    ]
    settings = await settings_of_person() + (await repository.git.repo()).settings
    if settings.on("commit.gpgsign"):
        found.append("its commits are not signed, nor is a merge by task apply --merge")
    if converts(settings):
        found.append("ends of lines are not converted: the worker has them as git keeps them")
    return found


def converts(settings: Settings) -> bool:
    """Whether git converts ends of lines in the person's files."""
    return settings.get("core.autocrlf").lower() not in {"", "false"} or bool(
        settings.get("core.eol")
    )


async def changed(git: Git, own: Settings, *, untracked: bool = True) -> bytes:
    """What is not committed, each ended by NUL.

    Args:
        own: the person's settings, for the names that are ignored.
    """
    usual = Path("~/.config/git/ignore")
    try:
        ignored = str(Path(own.get("core.excludesfile") or usual).expanduser())
    except RuntimeError:
        ignored = ""
    words = ("status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all")
    which = () if untracked else ("--untracked-files=no",)
    settings = {"core.excludesFile": ignored, "status.showUntrackedFiles": "normal"}
    return await git.run(*words, *which, files=True, settings=settings)


async def guarded(repository: Repository) -> list[Path]:
    """What decides what the person's git runs, and may lie in the repository: folders of hooks, included settings."""
    found: list[Path] = []
    named = ("~/.gitconfig", "~/.config/git/config", os.environ.get("GIT_CONFIG_GLOBAL", ""))
    own = [path for name in filter(None, named) for path in _places(name)]
    ahead = [(path.parent, await settings_of_person()) for path in own]
    ahead.append((repository.common, (await repository.git.repo()).settings))
    while ahead and len(found) < MOST_INCLUDED:
        folder, settings = ahead.pop()
        for name in filter(None, (settings.get("core.hookspath"),)):
            found += _places(name, repository.top, repository.common)
        for name in settings.ending("include", ".path"):
            for path in _places(name, folder, repository.top):
                if path not in found:
                    found.append(path)
                    with suppress(PostroomError):  # git does not take it either
                        real = await asyncio.to_thread(path.resolve)
                        ahead.append((path.parent, await settings_of_file(real)))
    return found + own


def _places(name: str, *folders: Path) -> list[Path]:
    try:
        path = Path(name).expanduser()
    except RuntimeError:  # nobody's home
        return []
    return [folder / path for folder in folders] or [path]


async def filtered(git: Git, commit: str, pattern: str = FILTER) -> bool:
    """Whether attributes of the commit have some files pass through filters."""
    words = ("grep", "--no-textconv", "-q", "-E", "-e", pattern, commit)
    try:
        await git.run(*words, "--", ":(glob)**/.gitattributes")
    except GitFailed:
        return False
    return True
