"""Where git would find a repository, and what its folders are; found without git and without trust in any of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath
from shlex import quote

from postroom.errors import InvalidInput
from postroom.workers.workspaces import plain

GIT = ".git"
GUARD = "gitdir:\n"
"""Content of a `.git` of ours that stands for none: git takes it for an error, and looks no further."""
MOST_ALTERNATES = 16
"""Further folders of objects that a repository may borrow from, and a worker with it."""
LARGEST_SHALLOW = 8 << 20
_LARGEST = 64 * 1024
_HEAD = re.compile(r"ref: refs/[^\x00-\x20\x7f~^:?*\[\\]+|[0-9a-f]{40}(?:[0-9a-f]{24})?")
INCOMING = "tmp_objdir-"
"""How git begins the name of a folder of objects that are not checked yet, and takes it away if it is left."""
_OBJECTS = re.compile(rf"pack|info|[0-9a-f]{{2}}|{INCOMING}[\w-]+")
_LOCKS = frozenset({"maintenance.lock", "schedule.lock"})


class NotLent(InvalidInput):
    """A repository that cannot lend its objects; a copy of its files is possible."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of a repository.

    Attributes:
        top: the folder with its files; of a bare one of ours, itself.
        folder: its git directory.
        common: the same, but of a linked worktree that of the repository.
        named: whether the repository has to name `top` as its files', since something in `top` leads to it.
    """

    top: Path
    folder: Path
    common: Path
    named: bool = False

    def head(self) -> str:
        """What is checked out: `ref: refs/heads/NAME`, or a commit."""
        return _head(self.folder) or ""

    def foreign(self) -> Path | None:
        """Which of its folders belongs to another user, None if none does."""
        mine = {os.geteuid()}
        if os.geteuid() == 0 and (sudo := os.environ.get("SUDO_UID", "")).isdecimal():
            mine.add(int(sudo))
        places = (self.top, self.top / GIT, self.folder, self.common)
        there = (place for place in places if os.path.lexists(place))
        return next((place for place in there if place.lstat().st_uid not in mine), None)

    def busy(self) -> bool:
        """Whether the person is in the middle of something."""
        names = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "BISECT_LOG")
        return any(
            os.path.lexists(self.folder / name)
            for name in (*names, "rebase-merge", "rebase-apply", "sequencer")
        )

    def checked_out(self, ref: str) -> str:
        """The worktree that is on a branch, "" if none is."""
        if _head(self.common) == f"ref: {ref}":
            return str(self.common.parent if self.common.name == GIT else self.common)
        linked = self.common / "worktrees"
        for folder in sorted(linked.iterdir()) if plain.is_folder(linked) else ():
            if _head(folder) == f"ref: {ref}":
                return _text(folder / "gitdir").removesuffix(f"/{GIT}")
        return ""


def looks_like(names: Iterable[str]) -> bool:
    """Whether git may take a folder with these entries for a git directory, whatever it is called."""
    found = {name.casefold() for name in names}
    return "head" in found and ("commondir" in found or {"objects", "refs"} <= found)


def is_guard(path: Path) -> bool:
    """Whether a `.git` is ours and stands for none."""
    return plain.is_file(path) and _text(path, strip=False) == GUARD


def find(folder: Path) -> Layout | None:
    """The repository that `folder` lies in, as git looks for it; None if it lies in none.

    Raises:
        InvalidInput: it is, or lies in, what git takes for a git directory, or in a repository of somebody else.
        NotLent: what is there leads elsewhere, without a word of that in the repository that it leads to.
    """
    device = folder.stat().st_dev
    for place in (folder, *folder.parents):
        if place.stat().st_dev != device:
            return None
        if (found := at(place)) is not None:
            return found
        refuse_bare(place)
    return None


def refuse_bare(place: Path) -> None:
    """Refuse a folder that git takes for a git directory by itself."""
    names = ("HEAD", "commondir", "objects", "refs")
    if looks_like(name for name in names if os.path.lexists(place / name)):
        raise InvalidInput(
            f"{place} is a bare repository or a git directory, without files to work on",
            remedy="name a clone or a worktree of it; if it is none, rename its file HEAD",
        )


def at(top: Path) -> Layout | None:
    """The repository whose `.git` lies in `top`; see `find`."""
    entry = top / GIT
    if not os.path.lexists(entry) or is_guard(entry):
        return None
    folder, leads = entry, entry.is_symlink()
    if plain.is_file(entry):
        said = _text(entry)
        if not said.startswith("gitdir: "):
            raise NotLent(f"{entry} says nothing that git understands", remedy="remove it")
        folder, leads = top / said.removeprefix("gitdir: "), True
    folder = folder.resolve()
    common = _common(folder)
    head = _head(folder)
    if head is None or not ((common / "objects").is_dir() and (common / "refs").is_dir()):
        if leads:
            raise NotLent(f"{entry} leads to {folder}, which is no git directory")
        return None
    if common != folder:
        _check_linked(top, folder, common)
        leads = False
    _check_refs(common, head)
    return Layout(top, folder, common, leads)


def module(layout: Layout, name: str, path: str) -> Layout | None:
    """The submodule that git keeps in a repository, None if there is none; it has to name `path` as its files'.

    Raises:
        NotLent: it has branches elsewhere.
    """
    for place in dict.fromkeys((layout.folder, layout.common)):  # a linked worktree has its own
        folder = place / "modules" / name
        head = _head(folder) if plain.is_direct(folder, place) and plain.is_folder(folder) else None
        if head and plain.is_folder(folder / "objects") and plain.is_folder(folder / "refs"):
            _check_refs(folder, head)
            return Layout(layout.top / path, folder, folder, named=True)
    return None


def bare(folder: Path) -> Layout:
    """A repository of ours without files."""
    return Layout(folder, folder, folder)


def make_bare(folder: Path) -> None:
    """Make a repository of ours without files."""
    for name in ("objects/info", "objects/pack", "refs/heads"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")


def _common(folder: Path) -> Path:
    said = _text(folder / "commondir")
    return (folder / said).resolve() if said else folder


def _check_linked(top: Path, folder: Path, common: Path) -> None:
    """A worktree is one of a repository only if the repository has it in its list."""
    said = _text(folder / "gitdir")
    back = Path(os.path.abspath(folder / said)) if said else folder  # noqa: PTH100 (links stay links)
    if folder.parent != common / "worktrees" or back.parent.resolve() != top.resolve():
        raise NotLent(
            f"{top} says that it is a worktree of {common}, which knows nothing of it",
            remedy=f"if it is one: git -C {quote(str(common))} worktree repair {quote(str(top))}",
        )


def _check_refs(common: Path, head: str) -> None:
    on = PurePath(head.removeprefix("ref: ")).parents if head.startswith("ref: ") else ()
    for name in ("refs", "refs/heads", "refs/heads/postroom", "refs/postroom", "reftable", *on):
        if (common / name).is_symlink():
            raise NotLent(f"{common / name} is a link, so its branches are elsewhere")
    packed = common / "packed-refs"
    if os.path.lexists(packed) and not plain.is_file(packed):
        raise NotLent(f"{packed} is no plain file")


def _head(folder: Path) -> str | None:
    path = folder / "HEAD"
    # A link is as git wrote it long ago.
    said = f"ref: {path.readlink()}" if path.is_symlink() else _text(path)
    return said if _HEAD.fullmatch(said) and ".." not in said else None


def _text(path: Path, *, strip: bool = True) -> str:
    try:
        found = (plain.read(path, _LARGEST) or b"").decode(errors="surrogateescape")
    except OSError:
        return ""
    return found.rstrip("\n") if strip else found


def shallow(folder: Path) -> tuple[str, ...]:
    """The commits whose parents a git directory has not got; raises OSError."""
    found = plain.read(folder / "shallow", LARGEST_SHALLOW)
    return tuple((found or b"").decode("ascii", "replace").split())


def objects(store: Path) -> list[Path]:
    """A folder of objects and those that it borrows from, each once, by their real names.

    Raises:
        NotLent: one of them is no folder of objects alone, or there are too many.
    """
    found: list[Path] = []
    ahead = [store]
    while ahead:
        folder = ahead.pop(0).resolve()
        if folder in found or not folder.is_dir():
            continue
        _check_objects(folder)
        found.append(folder)
        if len(found) > MOST_ALTERNATES:
            raise NotLent(f"{store} borrows from over {MOST_ALTERNATES} folders of objects")
        ahead += [folder / line for line in _alternates(folder)]
    return found


def _check_objects(folder: Path) -> None:
    """Only what git itself keeps there: whoever can name a folder in `alternates` would show any to a worker."""
    strange = "" if folder.name == "objects" else folder.name
    with os.scandir(folder) as entries:
        for entry in entries:
            fine = _OBJECTS.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            if not fine and entry.name not in _LOCKS:
                strange = entry.name
    if strange:
        raise NotLent(
            f"{folder} is to be lent as a folder of git's objects, and is none ({strange!r})",
            remedy="look at objects/info/alternates of the repository; or work on a copy: --as copy",
        )


def _alternates(folder: Path) -> list[str]:
    listed = folder / "info" / "alternates"
    try:
        lines = (plain.read(listed, _LARGEST) or b"").decode(errors="surrogateescape").split("\n")
    except OSError as error:
        raise NotLent(f"cannot read {listed}: {error.strerror}") from error
    if any(line.startswith('"') for line in lines):
        raise NotLent(f"{listed} has a name in quotes", remedy="name a folder with a plain name")
    return [line for line in lines if line and not line.startswith("#")]
