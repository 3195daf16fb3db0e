"""The branches of a person that a worker sees as `person/NAME`: which, how far both are apart, and when they changed.

The host keeps a folder for each worker, in which git finds them as plain refs. The worker's sandbox shows it
read-only, beside the objects that it borrows, and a link in the worker's repository leads there. So a branch is there
at once, with no git command inside, and nothing that a worker wrote is read.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from postroom.errors import InvalidInput, StateUnwritable
from postroom.identity.privatefile import replace
from postroom.sandbox.port import Mount
from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.layout import at
from postroom.workers.workspaces.plan import BRANCHES
from postroom.workers.workspaces.records import Held
from postroom_a2a.text import one_line

PERSON = "/opt/person"
"""Where a worker's sandbox shows the folder."""
FOLDER = "person"
"""Its name in the worker's folder of the host."""
REFS = "refs"
STANDING = "standing.json"
"""What stands in the folder beside the refs: see `Standing`."""
MOST_REFS = 500
MOST_FOLDERS = 200
"""Folders of refs that are watched; what is in further ones counts from the next turn on."""
LONGEST_NAME = 200
MOST_PATTERNS = 20
MOST_STARS = 4
"""In one pattern: git tries all that they could stand for."""
FRESH = 1.0
"""Seconds in which a second change may leave the same time on the disk."""
_HEADS, _REMOTES = "refs/heads/", "refs/remotes/"
_PART = re.compile(r"(?![.-])[^\x00-\x20\x7f~^:?*\[\\/]+(?<!\.lock)(?<!\.)")
_HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a worker and its person's branch are apart, as of the last look.

    Attributes:
        branch: the one that it began from, "" for none.
        newest: its commit.
        behind: commits that only the branch has.
        ahead: those that only the worker has.
    """

    branch: str = ""
    newest: str = ""
    behind: int = 0
    ahead: int = 0


def mount(root: Path) -> Mount:
    """The folder of the worker with this folder, for its sandbox."""
    return Mount(root / FOLDER, PERSON)


async def track(root: Path, git: Git, held: Held) -> Standing:
    """Write the refs that a worker sees as they are now, and say how far both are apart.

    Raises:
        GitFailed, InvalidInput: the repository cannot be read; the refs stay as they were.
        StateUnwritable: the disk is full.
    """
    upstream = await _upstream(git, held)
    found = chosen(await _listed(git, held, upstream), held, upstream)
    apart = await standing(git, held)
    try:
        await asyncio.to_thread(_write, root / FOLDER, found, apart)
    except OSError as error:
        raise StateUnwritable(f"cannot write {error.filename}: {error.strerror}") from error
    return apart


async def standing(git: Git, held: Held) -> Standing:
    """How far they are apart now."""
    newest = await git.value(f"{_HEADS}{held.origin}") if held.own and held.origin else ""
    if not newest:
        return Standing(held.origin or "")
    words = (f"{newest}...{held.brought}",) if held.brought else (newest,)
    # The worker's commits are a stranger's.
    counted = await git.run("rev-list", "--left-right", "--count", *words, stranger=True)
    behind, ahead = (int(count) for count in counted.split()[:2])
    if not held.brought:  # without two sides git counts all as the right one
        behind, ahead = ahead, behind
    return Standing(held.origin or "", newest, behind, ahead)


async def _upstream(git: Git, held: Held) -> str:
    """The ref of the branch that the person's one follows, "" for none."""
    settings = (await git.repo()).settings
    remote = settings.get(f"branch.{held.origin}.remote")
    merged = settings.get(f"branch.{held.origin}.merge")
    if not remote or not merged.startswith(_HEADS):
        return ""
    return merged if remote == "." else f"{_REMOTES}{remote}/{merged.removeprefix(_HEADS)}"


async def _listed(git: Git, held: Held, upstream: str) -> dict[str, str]:
    """The refs of branches that are commits: at most `MOST_REFS` of those that patterns name."""
    own = [ref for ref in (f"{_HEADS}{held.origin}", upstream) if ref]
    form = ("for-each-ref", "--format=%(objectname) %(refname)", f"--count={MOST_REFS}")
    listed = await git.run(*form, "--", *own)
    if held.patterns:
        listed += await git.run(*form, "--", *_refs(held.patterns))
    # At line feeds alone: a name may have what else ends a line.
    lines = [line.partition(" ") for line in listed.decode(errors="surrogateescape").split("\n")]
    found = {name: commit for commit, _, name in lines if _HASH.fullmatch(commit)}
    commits = await _commits(git, found.values())
    return {name: commit for name, commit in found.items() if commit in commits}


async def _commits(git: Git, names: Iterable[str]) -> set[str]:
    """Those of the objects that are commits, and are there."""
    read, write = os.pipe()
    try:
        # At most `MOST_REFS` names and two: less than a pipe holds.
        os.write(write, "".join(f"{name}\n" for name in names).encode())
        os.close(write)
        said = await git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=read)
    finally:
        os.close(read)
    lines = (line.split(" ") for line in said.decode().splitlines())
    return {words[0] for words in lines if words[1:] == ["commit"]}


def checked(patterns: Sequence[str]) -> tuple[str, ...]:
    """Patterns of branches, each once: names as git allows them, with `*` for any text.

    Raises:
        InvalidInput: there is another one, or there are too many.
    """
    found = tuple(dict.fromkeys(patterns))
    for each in found:
        named = each.isprintable() and _harmless(each.replace("*", "x"))
        if not named or each.startswith("refs/") or each.count("*") > MOST_STARS:
            raise InvalidInput(
                f"{one_line(each, 100)!r} is no pattern of branches",
                remedy="name branches as git does, with * for any text: --branches 'release/*'",
            )
    if len(found) > MOST_PATTERNS:
        raise InvalidInput(f"there are over {MOST_PATTERNS} patterns of branches")
    return found


def _refs(patterns: Iterable[str]) -> list[str]:
    return [kind + pattern for pattern in patterns for kind in (_HEADS, _REMOTES)]


async def notes(git: Git, held: Held) -> list[str]:
    """What a person may have expected of the patterns, and is not so."""
    said = [
        f"no branch is called {one_line(pattern, LONGEST_NAME)} yet"
        for pattern in held.patterns
        if not await git.line("for-each-ref", "--count=1", "--", *_refs((pattern,)))
    ]
    if held.patterns:
        upstream = await _upstream(git, held)
        listed = await _listed(git, held, upstream)
        names = {_name(ref) for ref in listed if not _of_worker(ref, held)}
        left = sorted(names - {*chosen(listed, held, upstream)})
        if left:
            first = one_line(left[0], LONGEST_NAME)
            said.append(f"not seen, since their names collide or are unusual: {first}")
            said[-1] += f" and {len(left) - 1} more" if left[1:] else ""
    return said


def _name(ref: str) -> str:
    return ref.removeprefix(_HEADS).removeprefix(_REMOTES)


def _of_worker(ref: str, held: Held) -> bool:
    """Whether it is a worker's branch that was not asked for."""
    return ref.startswith(_HEADS + BRANCHES) and not of_workers(held)


def of_workers(held: Held) -> bool:
    """Whether branches of workers were asked for: a pattern such as `*` does not stand for them."""
    return any(pattern.startswith(BRANCHES) for pattern in held.patterns)


def chosen(listed: dict[str, str], held: Held, upstream: str) -> dict[str, str]:
    """The names by which a worker sees refs; where two cannot be beside each other, the first one is there.

    Names that differ in case alone cannot: on some disks they are one.

    Args:
        listed: the person's refs and their commits.
        upstream: the ref that comes after the branch that it began from.
    """
    first = [f"{_HEADS}{held.origin}", upstream]
    found: dict[str, str] = {}
    taken: set[str] = set()
    above: set[str] = set()
    for ref in sorted(listed, key=lambda ref: (ref not in first, not ref.startswith(_HEADS), ref)):
        name = _name(ref)
        key, *folders = _places(name)
        if (
            _of_worker(ref, held)
            or not _harmless(name)
            or key in taken | above
            or taken & {*folders}
        ):
            continue
        found[name] = listed[ref]
        taken.add(key)
        above.update(folders)
    return found


def _harmless(name: str) -> bool:
    short = len(name.encode(errors="surrogateescape")) <= LONGEST_NAME
    plain = all(_PART.fullmatch(part) for part in name.split("/"))
    return short and plain and ".." not in name and "@{" not in name


def _places(name: str) -> list[str]:
    """Where a ref lies on a disk that keeps no case apart: its own place, then the folders around it."""
    parts = unicodedata.normalize("NFC", name).casefold().split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _write(folder: Path, found: dict[str, str], apart: Standing) -> None:
    refs = folder / REFS
    refs.mkdir(parents=True, exist_ok=True, mode=0o700)
    for place, _, names in os.walk(refs, topdown=False):
        for name in names:
            path = Path(place, name)
            if str(path.relative_to(refs)) not in found:
                path.unlink()
        if Path(place) != refs and not any(Path(place).iterdir()):
            Path(place).rmdir()  # a branch may come to be where a folder was
    for name, commit in found.items():
        _put(refs / name, f"{commit}\n")
    _put(folder / STANDING, json.dumps(asdict(apart)))


def _put(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace(path, text.encode(), sync=False)


def marks(top: Path, *, workers: bool = False) -> tuple[object, ...]:
    """What differs once a ref of the repository has changed; a call is a few looks at the disk and no git.

    Git renames a new file to the place of an old one, so the folder is younger then.

    Args:
        workers: the branches of workers count, too.
    """
    layout = at(top)
    if layout is None:
        return ()
    common, now = layout.common, time.time()
    folders = [common / "refs"]
    for kind in ("heads", "remotes"):
        for place, names, _ in os.walk(common / "refs" / kind):
            if Path(place) == common / "refs" / "heads":
                names[:] = [name for name in names if workers or f"{name}/" != BRANCHES]
            folders.append(Path(place))
            if len(folders) > MOST_FOLDERS:
                break
    files = [common / "packed-refs", common / "config", common / "reftable" / "tables.list"]
    found = [_mark(path) for path in (*folders, *files)]
    young = any(abs(now - mark[1] / 1e9) < FRESH for mark in found)
    return (*found, now if young else 0.0)


def _mark(path: Path) -> tuple[int, int, int]:
    try:
        found = path.lstat()
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_mtime_ns, found.st_size)
