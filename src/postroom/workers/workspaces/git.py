"""Git outside of a sandbox on one repository, through a view of ours: nothing of it decides what git does.

The view is a git directory for one command. Links lead to the repository's refs and packed refs, so git reads and locks
them where they are. Settings, hooks and attributes are not in it, and so not known. What a worker wrote gets here as a
bundle only, whose objects are checked like anything from a stranger.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Self

from postroom.errors import InvalidInput
from postroom.workers.workspaces import plain, program
from postroom.workers.workspaces.layout import INCOMING, Layout, NotLent, at, bare, objects
from postroom.workers.workspaces.program import LARGEST_ANSWER, GitFailed, Settings

_CHECKED = ("index-pack", "--stdin", "--fix-thin", "--strict", "--fsck-objects")
_BUNDLE = re.compile(
    rb"# v[23] git bundle\n(?:@object-format=sha(?:1|256)\n)?(?:-[0-9a-f]{40,64}(?: [^\n]*)?\n)*"
    rb"([0-9a-f]{40,64}) ([^\n ]+)\n\n"
)
_LARGEST_HEAD = 64 * 1024

EMPTY_TREES = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
_SHARED_INDEX = re.compile(r"sharedindex\.[0-9a-f]+")
_FILES = (
    *("core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode"),
    "core.sharedrepository",
)
"""What the file system can do, and who may read what is written: the repository's word is handed over."""
_PLAIN = re.compile(r"true|false|group|all|umask|0[0-7]{3}")
_EXTENSIONS = {
    f"extensions.{name}"
    for name in (
        *("noop", "noop-v1", "objectformat", "refstorage", "partialclone", "preciousobjects"),
        *("worktreeconfig", "relativeworktrees"),
    )
}
_STORES = {"": "", "files": "", "reftable": "reftable"}


class Git:
    """Runs git on one repository.

    Args:
        place: its folder, with the `.git` in it.
        repo: what is known of it, if it was looked at already.
    """

    def __init__(self, place: Path, repo: Repo | None = None) -> None:
        self._place = place
        self._repo = repo

    @classmethod
    def own(cls, place: Path) -> Self:
        """Git on a repository of ours without files (`layout.make_bare`)."""
        return cls(place, Repo(bare(place), place / "objects"))

    async def repo(self) -> Repo:
        """The repository.

        Raises:
            InvalidInput: there is none that can be used.
        """
        if self._repo is None:
            layout = await asyncio.to_thread(at, self._place)
            if layout is None:
                raise NotLent(f"{self._place} is no repository any more")
            self._repo = await known(layout)
        return self._repo

    async def run(
        self,
        *words: str,
        codes: tuple[int, ...] = (0,),
        files: bool = False,
        stranger: bool = False,
        env: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        stdin: int = asyncio.subprocess.DEVNULL,
        most: int = LARGEST_ANSWER,
    ) -> bytes:
        """What `git WORDS` prints, at most `most` bytes of it; see `program.run`.

        Args:
            files: it may read and write the person's files, and what is staged.
        """
        repo = await self.repo()
        with shown(repo, files=files) as (place, view):
            return await program.run(
                words,
                env=dict(view) | dict(env or {}),
                settings=repo.handed | dict(settings or {}),
                place=place,
                stdin=stdin,
                codes=codes,
                stranger=stranger,
                most=most,
            )

    async def empty_tree(self) -> str:
        """The name of a tree without files."""
        return EMPTY_TREES[(await self.repo()).format]

    async def take(self, bundle: Path, commit: str) -> None:
        """Take the objects of a bundle over, each checked; none if one is not right.

        Raises:
            GitFailed: it is no bundle of that commit, or one of them is not right.
        """
        place = os.open(bundle, os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = _BUNDLE.match(os.pread(place, _LARGEST_HEAD, 0))
            if found is None or found[1].decode() != commit:
                raise GitFailed("what came back is no bundle of the commit that the worker is at")
            os.lseek(place, found.end(), os.SEEK_SET)
            store = (await self.repo()).store
            with tempfile.TemporaryDirectory(prefix=INCOMING, dir=store) as name:
                incoming = Path(name)
                await asyncio.to_thread(_borrow, incoming, store)
                env = {"GIT_OBJECT_DIRECTORY": name}
                await self.run(*_CHECKED, env=env, stdin=place, stranger=True)
                await asyncio.to_thread(_keep, incoming / "pack", store / "pack")
        finally:
            os.close(place)

    async def line(self, *words: str) -> str:
        """The first line that `git WORDS` prints, "" if it fails or prints nothing."""
        try:
            return _text(await self.run(*words)).partition("\n")[0]
        except GitFailed:
            return ""

    async def lines(self, *words: str) -> list[str]:
        """The lines that `git WORDS` prints."""
        return _text(await self.run(*words)).splitlines()

    async def value(self, ref: str) -> str:
        """The object that a ref names, "" if there is no such ref."""
        return await self.line("rev-parse", "--verify", "-q", f"{ref}^{{object}}")

    async def set(self, ref: str, to: str, was: str | None = None) -> None:
        """Set a ref, which names `was` now ("" for none, None for anything); GitFailed if it names another."""
        words = ["update-ref", "--no-deref", "-m", "postroom", ref, to]
        if was is not None:
            words.append(was or "0" * len(to))
        await self.run(*words)

    async def drop(self, ref: str) -> None:
        """Delete a ref, if there is one."""
        await self.run("update-ref", "--no-deref", "-d", ref)


def _text(output: bytes) -> str:
    return output.decode(errors="surrogateescape")


def _borrow(incoming: Path, store: Path) -> None:
    for name in ("pack", "info"):
        (incoming / name).mkdir()
    (incoming / "info" / "alternates").write_text(f"{store}\n", errors="surrogateescape")


def _keep(incoming: Path, packs: Path) -> None:
    """Move packs; the index comes last, since git knows a pack by it."""
    packs.mkdir(exist_ok=True)
    for path in sorted(incoming.glob("pack-*"), key=lambda path: path.suffix == ".idx"):
        path.rename(packs / path.name)


async def known(layout: Layout) -> Repo:
    """What is known of the repository with these folders.

    Raises:
        InvalidInput: it cannot be used.
    """
    await _refuse_foreign(layout)
    settings = await program.settings_of_file(layout.common / "config")
    if settings.on("extensions.worktreeconfig"):
        settings += await program.settings_of_file(layout.folder / "config.worktree")
    (store, *_) = await asyncio.to_thread(objects, layout.common / "objects")
    return described(layout, store, settings)


async def _refuse_foreign(layout: Layout) -> None:
    if not (place := layout.foreign()):
        return
    safe = [
        value
        for name, value in (await program.settings_of_person()).pairs
        if name == "safe.directory"
    ]
    if "*" not in safe and str(layout.top) not in safe:
        raise NotLent(
            f"{place} belongs to another user of this machine",
            remedy=f"if it is yours: git config --global --add safe.directory {quote(str(layout.top))}",
        )


@dataclass(frozen=True, slots=True)
class Repo:
    """A repository, as far as a view shows it.

    Attributes:
        layout: its folders.
        store: its objects, by the real name of their folder.
        format: of the names of its objects, `sha1` or `sha256`.
        refs: how its refs are kept, "" for the usual way.
        settings: what its files of settings say, as data.
    """

    layout: Layout
    store: Path
    format: str = "sha1"
    refs: str = ""
    settings: Settings = field(default_factory=Settings)

    @property
    def handed(self) -> dict[str, str]:
        """The settings that a command gets because of the repository."""
        known = {name: self.settings.get(name).lower() for name in _FILES}
        plainly = {name: value for name, value in known.items() if _PLAIN.fullmatch(value)}
        return plainly | {"attr.tree": EMPTY_TREES[self.format]}


def described(layout: Layout, store: Path, settings: Settings) -> Repo:
    """The repository with these settings.

    Raises:
        InvalidInput: it is a bare one.
        NotLent: it is of a kind that cannot be shown, or its files are elsewhere.
    """
    top = layout.top
    if layout.common == layout.folder and settings.on("core.bare"):
        raise InvalidInput(
            f"{top} is a bare repository, without files to work on",
            remedy="name a clone or a worktree of it",
        )
    named = settings.get("core.worktree") if layout.common == layout.folder else ""
    if (named or layout.named) and (layout.folder / named).resolve() != top.resolve():
        where = layout.folder
        raise NotLent(
            f"{top} leads to the repository {where}, which does not name it as the folder of its files",
            remedy=f"if it is: git --git-dir={quote(str(where))} config core.worktree {quote(str(top))};"
            " or work on a copy: --as copy",
        )
    if settings.get("extensions.partialclone") or settings.ending("remote.", ".promisor"):
        raise NotLent(
            f"{top} is a partial clone: git fetches its objects when they are asked for, and a worker cannot",
            remedy="work on a full clone, or on a copy: --as copy",
        )
    unknown = {name for name, _ in settings.pairs if name.startswith("extensions.")} - _EXTENSIONS
    if unknown:
        raise NotLent(f"{top} is a repository of a kind that is not known: {min(unknown)}")
    kind = settings.get("extensions.objectformat").lower() or "sha1"
    refs = settings.get("extensions.refstorage").lower()
    if kind not in EMPTY_TREES or refs not in _STORES:
        raise NotLent(f"{top} is a repository of a kind that is not known: {kind} {refs}")
    return Repo(layout, store, kind, _STORES[refs], settings)


@contextmanager
def shown(repo: Repo, *, files: bool) -> Generator[tuple[Path, Mapping[str, str]]]:
    """A view, and the environment for a command on it.

    Args:
        files: the command may read and write the files of the person, and what is staged.

    Raises:
        NotLent: what is staged is kept elsewhere.
    """
    layout = repo.layout
    index = layout.folder / "index"
    if files and os.path.lexists(index) and not plain.is_file(index):
        raise NotLent(f"{index} is no plain file")
    with tempfile.TemporaryDirectory(prefix="postroom-git-", ignore_cleanup_errors=True) as name:
        view = Path(name)
        (view / "HEAD").write_text(f"{layout.head()}\n", errors="surrogateescape")
        (view / "config").write_text(_config(repo, bare=not files))
        _link(view, repo)
        env = {"GIT_DIR": name, "GIT_OBJECT_DIRECTORY": str(repo.store)}
        if files:
            env |= {
                "GIT_WORK_TREE": str(layout.top),
                "GIT_INDEX_FILE": str(index),
            }
        yield (layout.top if files else view), env


def _config(repo: Repo, *, bare: bool) -> str:
    lines = ["[core]", f"bare = {'true' if bare else 'false'}", "repositoryformatversion = 1"]
    lines += ["[extensions]", f"objectFormat = {repo.format}"]
    if repo.refs:
        lines.append(f"refStorage = {repo.refs}")
    return "".join(f"{line}\n" for line in lines)


def _link(view: Path, repo: Repo) -> None:
    common, folder = repo.layout.common, repo.layout.folder
    # Git takes their real names for its locks and for new files.
    for name in ("refs", repo.refs or "packed-refs"):
        (view / name).symlink_to(common / name)
    (view / "info").mkdir()
    (view / "logs").mkdir()
    found = [
        (common / "shallow", "shallow"),
        (common / "info" / "exclude", "info/exclude"),
        *([(folder / "logs" / "HEAD", "logs/HEAD")] if plain.is_folder(folder / "logs") else []),
        *(
            (path, path.name)
            for path in folder.glob("sharedindex.*")
            if _SHARED_INDEX.fullmatch(path.name)
        ),
    ]
    for source, name in found:
        if plain.is_file(source):
            (view / name).symlink_to(source)
    _link_log(view, repo)


def _link_log(view: Path, repo: Repo) -> None:
    """The log of the branch that the person is on. Git writes to a log wherever a link leads."""
    name = repo.layout.head().removeprefix("ref: ")
    log = repo.layout.common / "logs" / name
    if plain.is_direct(log, repo.layout.common) and plain.is_file(log):
        (view / "logs" / name).parent.mkdir(parents=True)
        (view / "logs" / name).symlink_to(log)
