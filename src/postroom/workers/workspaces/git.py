"""Git outside of a sandbox on one repository, through a view of ours (`view.py`): nothing of it decides what git does.

What a worker wrote gets here as a bundle only, whose objects are checked like anything from a stranger.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Self

from postroom.workers.workspaces import config, program
from postroom.workers.workspaces.layout import INCOMING, Layout, NotLent, at, bare, objects
from postroom.workers.workspaces.program import LARGEST_ANSWER, GitFailed
from postroom.workers.workspaces.view import EMPTY_TREES, Repo, described, shown

_CHECKED = ("index-pack", "--stdin", "--fix-thin", "--strict", "--fsck-objects")
_BUNDLE = re.compile(
    rb"# v[23] git bundle\n(?:@object-format=sha(?:1|256)\n)?(?:-[0-9a-f]{40,64}(?: [^\n]*)?\n)*"
    rb"([0-9a-f]{40,64}) ([^\n ]+)\n\n"
)
_LARGEST_HEAD = 64 * 1024


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
    settings = await config.of_file(layout.common / "config")
    if settings.on("extensions.worktreeconfig"):
        settings += await config.of_file(layout.folder / "config.worktree")
    (store, *_) = await asyncio.to_thread(objects, layout.common / "objects")
    return described(layout, store, settings)


async def _refuse_foreign(layout: Layout) -> None:
    if not (place := layout.foreign()):
        return
    safe = [value for name, value in (await config.of_person()).pairs if name == "safe.directory"]
    if "*" not in safe and str(layout.top) not in safe:
        raise NotLent(
            f"{place} belongs to another user of this machine",
            remedy=f"if it is yours: git config --global --add safe.directory {quote(str(layout.top))}",
        )
