"""A worker's work joined with a person's newest commit: `merging.py ORDER ANSWER`, run as `inside.py` is.

`do` of an order is one of:

    merge   make the commit that has both, and put it into a bundle; nothing of the worker is changed
    move    put the worker's files, index and branch there; what a kill cut off is done to its end by the same order
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[3]))

from postroom.workers.workspaces import running
from postroom.workers.workspaces.inside import bundle, main, snapshot
from postroom.workers.workspaces.running import (
    Broken,
    empty,
    fresh,
    git,
    has_special,
    is_folder,
    take_index,
    tip_of,
    tried,
    who,
)

MAX_CONFLICTS = 100
"""Files that an answer names at most."""
BUSY = (
    *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge"),
    *("rebase-apply", "sequencer"),
)

Place = dict[str, str]
Answer = dict[str, Any]


def merge(order: dict[str, Any]) -> Answer:
    """Make the commit of both; of what was not committed, one more on top of it."""
    own = _own(order)
    if isinstance(own, dict):
        return own
    place = fresh(order, own)
    notes: list[str] = []
    tip, onto, work = tip_of(own, order, notes), order["onto"], order["work"]
    if notes:
        return {"refused": "its repository cannot be read"}
    if work not in ("", tip) and _parent(place, work) != tip:
        return {"again": True}  # it has committed since its work was brought back
    if tip and _contains(place, tip, onto):
        return {"head": tip, "top": work, "tip": tip}
    join = _rebased if order["rebase"] else _merged
    head, files = (onto, []) if not tip else join(order, place, tip)
    top = head
    if not files and work not in ("", tip):
        tree, files = _joined(order, place, (tip, work, head))
        top = _commit(order, place, tree, head, order["message"])
    if files:
        return {"conflicts": files[:MAX_CONFLICTS]}
    if top not in order["known"] and top != onto:
        bundle(order | {"known": [*order["known"], onto]}, place, top)
    return {"head": head, "top": top, "tip": tip}


def _own(order: dict[str, Any]) -> Path | Answer:
    """The worker's git directory, or why nothing can be done in it."""
    own = Path(order["workspace"], ".git")
    if not (is_folder(own) and is_folder(own / "objects") and is_folder(own / "refs")):
        return {"refused": "its .git is gone"}
    if has_special(own) or os.path.lexists(own / "reftable"):
        return {"refused": "its .git is no longer as git makes it"}
    if any(os.path.lexists(own / name) for name in BUSY):
        return {"refused": "it is in the middle of a merge or rebase of its own"}
    return own


def _merged(order: dict[str, Any], place: Place, tip: str) -> tuple[str, list[str]]:
    onto = order["onto"]
    if _contains(place, onto, tip):
        return onto, []
    tree, files = _merge_tree(place, tip, onto)
    if files:
        return "", files
    return _commit(order, place, tree, tip, order["title"], "-p", onto), []


def _rebased(order: dict[str, Any], place: Place, tip: str) -> tuple[str, list[str]]:
    """The worker's commits anew, each with its author and time; merges among them are left out."""
    onto = new = order["onto"]
    words = ("--reverse", "--topo-order", "--no-merges", f"{onto}..{tip}")
    for commit in git("rev-list", *words, env=place).splitlines():
        base = _parent(place, commit) or empty(place)
        tree, files = _joined(order, place, (base, new, commit))
        if files:
            return "", files
        if tree != _tree(place, new):
            new = _again(order, place, tree, new, commit)
    return new, []


def _again(order: dict[str, Any], place: Place, tree: str, parent: str, commit: str) -> str:
    said = git("log", "-1", "--format=%an%x00%ae%x00%ad%x00%B", "--date=raw", commit, env=place)
    name, mail, date, message = said.split("\0", 3)
    author = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": mail, "GIT_AUTHOR_DATE": date}
    env = place | who(order) | (author if name.strip() and mail.strip() else {})
    return git("commit-tree", tree, "-p", parent, "-F", "-", env=env, stdin=f"{message}\n")


def _joined(
    order: dict[str, Any], place: Place, trees: tuple[str, str, str]
) -> tuple[str, list[str]]:
    """The tree that has what the second and the third changed over the first, and the files that conflict."""
    base, one, other = (_tree(place, each) for each in trees)
    # By commits of its own, since older versions of git find the base by the history alone.
    root = _commit(order, place, base, "", "base")
    both = (_commit(order, place, tree, root, "side") for tree in (one, other))
    return _merge_tree(place, *both)


def _merge_tree(place: Place, *both: str) -> tuple[str, list[str]]:
    words = ("--write-tree", "-z", "--name-only", "--no-messages", "--allow-unrelated-histories")
    done = tried("merge-tree", *words, *both, env=place)
    if done.returncode not in (0, 1):
        raise Broken(f"git merge-tree: {done.stderr.strip()[-1000:] or done.returncode}")
    tree, *files = done.stdout.split("\0")
    return tree.strip(), list(dict.fromkeys(filter(None, files))) if done.returncode else []


def _commit(
    order: dict[str, Any], place: Place, tree: str, parent: str, message: str, *more: str
) -> str:
    parents = ("-p", parent) if parent else ()
    return git("commit-tree", tree, *parents, *more, "-m", message, env=place | who(order))


def _tree(place: Place, name: str) -> str:
    return git("rev-parse", "--verify", f"{name}^{{tree}}", env=place)


def _parent(place: Place, commit: str) -> str:
    """The first parent of a commit, "" for none."""
    return " ".join(git("rev-list", "--parents", "-n1", commit, env=place).split(" ")[1:2])


def _contains(place: Place, newer: str, older: str) -> bool:
    return tried("merge-base", "--is-ancestor", older, newer, env=place).returncode == 0


def move(order: dict[str, Any]) -> Answer:
    """Put the worker at `head`, with the files of `top`; what it has changed since `before` stays."""
    own = _own(order)
    if isinstance(own, dict):
        return own
    place = fresh(order, own)
    tip = tip_of(own, order, [])
    if tip not in (order["tip"], order["head"]):
        return {"again": True}
    try:
        with _locks(own, anew=order["again"]) as (index, ref):
            files = _move_files(order, place, own)
            if files:
                return {"conflicts": files[:MAX_CONFLICTS]}
            git("read-tree", "-m", order["head"], env=place)
            _install(Path(place["GIT_DIR"], "index"), index)
            if order["tip"]:
                (own / "ORIG_HEAD").write_text(f"{order['tip']}\n")
            ref.write_text(f"{order['head']}\n")
            ref.rename(ref.with_suffix(""))
    except FileExistsError:
        return {"again": True}  # git is at work in it
    return {}


@contextmanager
def _locks(own: Path, *, anew: bool) -> Generator[tuple[Path, Path]]:
    """The locks by which git keeps others from the index and the branch; `anew`: those there are left of a kill."""
    said = (own / "HEAD").read_text(errors="surrogateescape").strip()
    name = said.removeprefix("ref: ") if said.startswith("ref: refs/heads/") else "HEAD"
    if ".." in name:
        raise Broken("its HEAD names no branch")
    locks = (own / "index.lock", own / f"{name}.lock")
    taken: list[tuple[Path, os.stat_result]] = []
    try:
        for lock in locks:
            lock.parent.mkdir(parents=True, exist_ok=True)
            if anew:
                lock.unlink(missing_ok=True)
            place = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            taken.append((lock, os.fstat(place)))
            os.close(place)
        yield locks
    finally:
        for lock, mine in taken:  # by now it may be the lock of a git that the worker runs
            if os.path.lexists(lock) and os.path.samestat(lock.lstat(), mine):
                lock.unlink()


def _move_files(order: dict[str, Any], place: Place, own: Path) -> list[str]:
    """Give the files what is new; returns those that conflict, and none is changed then."""
    before, top = order["before"], order["top"]
    if not take_index(own, place):
        git("read-tree", *([before] if before else ["--empty"]), env=place)
    now = snapshot(place, before, running.moved(order)[0])
    wanted = _tree(place, top)
    first = _tree(place, before) if before else empty(place)
    if not order["force"]:
        files: list[str] = []
        if now not in (first, wanted):  # it has gone on, or a kill left some files as they were
            wanted, files = _joined(order, place, (first, now, wanted))
        if files := files or _in_the_way(place, Path(order["workspace"]), now, wanted):
            return files
    git("read-tree", "-m", "-u", now, wanted, env=place)
    running.follow(order, place, wanted)
    return []


def _in_the_way(place: Place, workspace: Path, now: str, wanted: str) -> list[str]:
    """The files of the worker that new ones would take the place of, and that git does not know."""
    listed = git("diff-tree", "-r", "-z", "--raw", "--no-renames", now, wanted, env=place)
    fields = listed.split("\0")
    changes = list(zip(fields[::2], fields[1::2], strict=False))
    gone = {path for entry, path in changes if entry.endswith(" D")}
    found: list[str] = []
    for entry, path in changes:
        if entry.endswith(" A"):
            parents = [str(each) for each in Path(path).parents]
            above = [each for each in parents if _is_file(workspace / each) and each not in gone]
            blob = entry.split(" ")[3]
            found += above or [
                each for each in _there(place, workspace, path, blob) if each not in gone
            ]
    return list(dict.fromkeys(found))


def _is_file(path: Path) -> bool:
    return os.path.lexists(path) and not is_folder(path)


def _there(place: Place, workspace: Path, path: str, blob: str) -> list[str]:
    """What is at a path already, if it is not that very content."""
    target = workspace / path
    if is_folder(target):
        walked = ((folder, name) for folder, _, names in os.walk(target) for name in names)
        return [str(Path(folder, name).relative_to(workspace)) for folder, name in walked]
    if not os.path.lexists(target):
        return []
    words = ("hash-object", "--no-filters", "--", str(target))
    same = not target.is_symlink() and tried(*words, env=place).stdout.strip() == blob
    return [] if same else [path]


def _install(source: Path, target: Path) -> None:
    """Make `source` the index, whose lock is `target`, with its time (see `inside.take_index`)."""
    found = source.stat()
    target.write_bytes(source.read_bytes())
    os.utime(target, ns=(found.st_mtime_ns, found.st_mtime_ns))
    target.rename(target.with_suffix(""))


ORDERS = {"merge": merge, "move": move}


if __name__ == "__main__":
    main(sys.argv[1:], ORDERS)
