"""A person's repository, as far as a worker's workspace depends on it."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from postroom.errors import InvalidInput, PostroomError
from postroom.workers.workspaces.config import Settings, of_file, of_person
from postroom.workers.workspaces.git import Git, known
from postroom.workers.workspaces.layout import find, shallow
from postroom.workers.workspaces.program import GitFailed
from postroom.workers.workspaces.submodules import Modules, lendable, modules

MOST_INCLUDED = 64
"""Files of settings that are looked at for further ones."""
FILTER = "filter=[^ ]"


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
    own = await of_person()
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
    settings = await of_person() + (await repository.git.repo()).settings
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
    ahead = [(path.parent, await of_person()) for path in own]
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
                        ahead.append((path.parent, await of_file(real)))
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
