"""A git directory of ours for one command: it has the refs and objects of a repository, and nothing that it decides.

Links lead to the repository's refs and packed refs, so git reads and locks them where they are. Settings, hooks and
attributes are not in it, and so not known.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from postroom.errors import InvalidInput
from postroom.workers.workspaces import plain
from postroom.workers.workspaces.config import Settings
from postroom.workers.workspaces.layout import Layout, NotLent

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
