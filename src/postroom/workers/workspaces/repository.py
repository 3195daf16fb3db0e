"""A person's repository, as far as a worker's workspace depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from postroom.errors import InvalidInput
from postroom.workers.workspaces.git import Git, GitFailed

MOST_ALTERNATES = 16
"""Further folders of objects that a repository may borrow from, and a worker with it."""


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
    """

    top: Path
    common: Path
    objects: tuple[Path, ...]
    head: str
    format: str
    shallow: tuple[str, ...]

    @property
    def git(self) -> Git:
        """Git on it."""
        return Git(self.top)


async def look(folder: Path) -> Repository | None:
    """The repository that `folder` lies in, None if it lies in none.

    Raises:
        InvalidInput: it cannot lend its objects: a bare one, or one that fetches them when they are asked for.
        GitFailed: git refuses it.
    """
    git = Git(folder)
    try:
        inside = (await git.lines("rev-parse", "--is-inside-work-tree", "--is-bare-repository"))[:2]
    except GitFailed as error:
        if "not a git repository" in error.message:
            return None
        raise
    if inside != ["true", "false"]:
        raise InvalidInput(
            f"{folder} is a bare repository or a git directory, without files to work on",
            remedy="name a clone or a worktree of it",
        )
    top = Path(await git.line("rev-parse", "--show-toplevel"))
    git = Git(top)
    common = Path(await git.line("rev-parse", "--path-format=absolute", "--git-common-dir"))
    await _refuse_partial(git, top)
    store = Path(await git.line("rev-parse", "--path-format=absolute", "--git-path", "objects"))
    shallow = common / "shallow"
    return Repository(
        top,
        common,
        tuple(_objects(store)),
        await git.line("rev-parse", "--verify", "-q", "HEAD^{commit}"),
        await git.line("rev-parse", "--show-object-format") or "sha1",
        tuple(shallow.read_text(encoding="ascii").split()) if shallow.is_file() else (),
    )


async def _refuse_partial(git: Git, top: Path) -> None:
    if await git.line(
        "config", "--get-regexp", r"^remote\..*\.promisor$|^extensions\.partialclone$"
    ):
        raise InvalidInput(
            f"{top} is a partial clone: git fetches its objects when they are asked for, and a worker cannot",
            remedy="work on a full clone, or on a copy: --as copy",
        )


def _objects(store: Path) -> list[Path]:
    """A folder of objects and those that it borrows from, each once."""
    found: list[Path] = []
    ahead = [store]
    while ahead:
        folder = ahead.pop(0).resolve()
        if folder in found or not folder.is_dir():
            continue
        found.append(folder)
        if len(found) > MOST_ALTERNATES:
            raise InvalidInput(f"{store} borrows from over {MOST_ALTERNATES} folders of objects")
        ahead += [folder / line for line in alternates(folder)]
    return found


def alternates(objects: Path) -> list[str]:
    """The folders that this folder of objects names as further ones."""
    listed = objects / "info" / "alternates"
    if not listed.is_file():
        return []
    lines = listed.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return [line for line in lines if line and not line.startswith(("#", '"'))]


async def notes(repository: Repository, folder: Path) -> list[str]:
    """What a worker on a branch of its own has not got, in sentences for people."""
    found, git = [], repository.git
    if folder.resolve() != repository.top.resolve():
        found.append(
            f"{folder} is a folder of the repository {repository.top}: the worker has all of it"
        )
    words = ("status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all")
    changed = await git.run(*await unfiltered(git), *words)
    if count := changed.count(b"\0"):
        what = "1 uncommitted change is" if count == 1 else f"{count} uncommitted changes are"
        found.append(f"{what} not taken: commit first, or --as copy")
    if not repository.head:
        return [*found, "the repository has no commit yet"]
    if await git.line("config", "--bool", "core.sparseCheckout") == "true":
        found.append("your checkout is sparse: the worker has all files")
    if modules := await submodules(git, repository.head):
        found.append(f"submodules are empty for the worker: {', '.join(modules)}")
    if await filtered(git, repository.head):
        found.append("files that git filters, such as those of LFS, are pointers for the worker")
    return found


async def hooks_folder(git: Git) -> str:
    """The folder that the person's settings name for hooks, "" for the usual one."""
    for scope in (
        "--local",
        "--global",
        "--system",
    ):  # not our own setting, which switches hooks off
        if named := await git.line("config", scope, "--path", "core.hooksPath"):
            return named
    return ""


async def filters(git: Git) -> dict[str, str]:
    """The programs that the person's git has for filters and merges, by the names of their settings."""
    names = r"^(filter\..*\.(clean|smudge|process)|merge\..*\.driver)$"
    try:
        listed = (await git.run("config", "-z", "--get-regexp", names, codes=(0, 1))).decode(
            errors="surrogateescape"
        )
    except GitFailed:
        return {}
    return {
        name: value for name, _, value in (e.partition("\n") for e in listed.split("\0")) if name
    }


async def unfiltered(git: Git) -> list[str]:
    """Options that switch these programs off."""
    return [word for name in await filters(git) for word in ("-c", f"{name}=")]


async def submodules(git: Git, commit: str) -> list[str]:
    """The first submodules of a commit."""
    if not await git.line("ls-tree", commit, ".gitmodules"):
        return []
    words = ("config", f"--blob={commit}:.gitmodules", "--get-regexp", r"\.path$")
    try:
        lines = await git.lines(*words)
    except GitFailed:
        return []
    return [line.partition(" ")[2] for line in lines][:10]


async def filtered(git: Git, commit: str) -> bool:
    """Whether attributes of the commit have some files pass through filters."""
    words = (
        "grep",
        "--no-textconv",
        "-q",
        "-E",
        "-e",
        r"filter=[^ ]",
        commit,
        "--",
        ":(glob)**/.gitattributes",
    )
    try:
        await git.run(*words)
    except GitFailed:
        return False
    return True
