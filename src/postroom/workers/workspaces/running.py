"""Git as the scripts run it that do an order about a workspace inside of a sandbox (`inside.py`), and their submodules.

It imports the standard library only. Submodules borrow the objects of the person's: `modules` of an order lists those
whose objects the sandbox shows, each with `path` in the workspace, `folder` of its git directory in the one of the
workspace, `holder` (that of the repository that it is a submodule of), `name`, the `commit` that is recorded, `format`,
`shallow` and `objects`. Where a submodule was put is kept as `refs/postroom/at` in it: what the worker moves is its own
work, and what it does not move says nothing, however old it is.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LARGEST_INDEX = 256 * 1024 * 1024
QUIET = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0")
BOUNDED = ("-c", "core.bigFileThreshold=32m", "-c", "pack.threads=1", "-c", "pack.windowMemory=64m")
# Nobody's own settings: neither the machine's nor those that the worker may have written to a home folder.
ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ADVICE": "0",
    "LC_ALL": "C",
}

AT = "refs/postroom/at"
Module = dict[str, Any]


class Broken(Exception):
    """The order cannot be done; the text is for people."""


def git(*words: str, env: dict[str, str] | None = None, stdin: str | None = None) -> str:
    """Run git and return what it prints; raises Broken."""
    done = tried(*words, env=env, stdin=stdin)
    if done.returncode != 0:
        raise Broken(f"git {words[0]}: {done.stderr.strip()[-1000:] or done.returncode}")
    return done.stdout.strip("\n")


def tried(
    *words: str, env: dict[str, str] | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Run git, whatever comes of it."""
    return subprocess.run(
        ["git", *QUIET, *BOUNDED, *words],
        input=stdin,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        env=os.environ | ENVIRONMENT | (env or {}),
        check=False,
    )


def who(order: dict[str, Any]) -> dict[str, str]:
    """The author of commits that are made for the worker."""
    name, mail = order["name"], order["mail"]
    return {
        "GIT_AUTHOR_NAME": name,
        "GIT_AUTHOR_EMAIL": mail,
        "GIT_COMMITTER_NAME": name,
        "GIT_COMMITTER_EMAIL": mail,
    }


def borrow(own: Path, objects: Iterable[str]) -> None:
    """Write where the objects are that a repository borrows."""
    info = own / "objects" / "info"
    info.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{folder}\n" for folder in objects)
    (info / "alternates").write_text(text, encoding="utf-8", errors="surrogateescape")


def cut(own: Path, commits: Iterable[str]) -> None:
    """Write of which commits a repository has not got the parents, if there are any."""
    if text := "".join(f"{commit}\n" for commit in commits):
        (own / "shallow").write_text(text)


def fresh(order: dict[str, Any], own: Path | None) -> dict[str, str]:
    """A repository of this script that sees the worker's objects; returns the environment for it."""
    repository = Path(order["out"], "repository.git")
    git(
        "init", "-q", "--bare", "--template=", f"--object-format={order['format']}", str(repository)
    )
    borrow(repository, [*([str(own / "objects")] if own else []), *order["objects"]])
    cut(repository, order["shallow"])
    git("config", "core.bare", "false", env={"GIT_DIR": str(repository)})
    return {"GIT_DIR": str(repository), "GIT_WORK_TREE": order["workspace"]}


def tip_of(own: Path, order: dict[str, Any], notes: list[str]) -> str:
    """The commit that the worker is at, else that of its branch, else the one that it began with."""
    for name in ("HEAD", f"refs/heads/{order['branch']}"):
        try:
            return git(f"--git-dir={own}", "rev-parse", "--verify", "-q", f"{name}^{{commit}}")
        except Broken:
            continue
    if order["base"]:
        notes.append("its repository cannot be read: its files are here, its commits are not")
    return order["base"]


def take_index(own: Path, place: dict[str, str]) -> bool:
    """Copy the worker's index, which spares reading every file again; data only, and checked when it is used."""
    try:
        found = (own / "index").lstat()
        if stat.S_ISREG(found.st_mode) and found.st_size <= LARGEST_INDEX:
            copied = Path(place["GIT_DIR"], "index")
            shutil.copyfile(own / "index", copied, follow_symlinks=False)
            # git counts whole seconds: it looks again into a file that is as young as the index. A younger index would
            # hide what was changed in the second of the checkout.
            os.utime(copied, ns=(found.st_mtime_ns, found.st_mtime_ns))
            return True
    except OSError:
        return False  # every file is read then
    return False


def empty(place: dict[str, str]) -> str:
    """The tree without files."""
    return git("hash-object", "-w", "-t", "tree", "--stdin", env=place, stdin="")


def has_special(own: Path) -> bool:
    """Whether there is anything that is no file, folder or link to one: git would wait for a pipe for ever."""
    for place, folders, files in os.walk(own):
        for name in (*folders, *files):
            path = os.path.join(place, name)  # noqa: PTH118 (there may be very many)
            try:
                mode = os.stat(path).st_mode  # noqa: PTH116
            except OSError:
                continue
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                return True
    return False


def is_folder(path: Path) -> bool:
    """Whether it is a folder, and no link to one."""
    return stat.S_ISDIR(path.lstat().st_mode) if os.path.lexists(path) else False


def populate(order: dict[str, Any]) -> None:
    """Make the submodules that are not there yet, and tell the others where the objects are that they borrow."""
    for module in order["modules"]:
        own, files = _places(order, module)
        if is_folder(own / "objects"):
            borrow(own, module["objects"])
        elif is_folder(files) and not any(files.iterdir()) and not os.path.lexists(own):
            _make(order, module)


def _places(order: dict[str, Any], module: Module) -> tuple[Path, Path]:
    workspace = Path(order["workspace"])
    return workspace / ".git" / module["folder"], workspace / module["path"]


def _make(order: dict[str, Any], module: Module) -> None:
    own, files = _places(order, module)
    own.mkdir(parents=True)
    git("init", "-q", "--bare", "--template=", f"--object-format={module['format']}", str(own))
    borrow(own, module["objects"])
    cut(own, module["shallow"])
    place = {"GIT_DIR": str(own), "GIT_WORK_TREE": str(files)}
    settings = {
        "core.bare": "false",
        "core.worktree": os.path.relpath(files, own),
        "user.name": order["name"],
        "user.email": order["mail"],
    }
    for name, value in settings.items():
        git("config", "--file", str(own / "config"), name, value)
    holder = Path(order["workspace"], ".git", module["holder"], "config")
    git("config", "--file", str(holder), f"submodule.{module['name']}.active", "true")
    git("update-ref", "--no-deref", "HEAD", module["commit"], env=place)
    git("update-ref", AT, module["commit"], env=place)
    git("read-tree", "-u", "--reset", module["commit"], env=place)
    (files / ".git").write_text(f"gitdir: {os.path.relpath(own, files)}\n")


def _head(own: Path, name: str = "HEAD") -> str:
    """The commit of a ref of a submodule, "" for none."""
    words = (f"--git-dir={own}", "rev-parse", "--verify", "-q", f"{name}^{{commit}}")
    return tried(*words).stdout.strip()


def _seen(order: dict[str, Any], number: int, own: Path | None) -> dict[str, str]:
    """A repository of ours that sees the objects of a submodule and those that it borrows, or the latter alone."""
    module = order["modules"][number]
    out = Path(order["out"], f"module-{number}{'' if own else '-lent'}")
    out.mkdir(exist_ok=True)
    return fresh({**module, "out": str(out), "workspace": str(_places(order, module)[1])}, own)


def _has(place: dict[str, str], commit: str) -> bool:
    return tried("cat-file", "-e", f"{commit}^{{commit}}", env=place).returncode == 0


def moved(order: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Where the worker has put submodules, by path, "" for as they were; and what of them is in its folder alone."""
    stands: dict[str, str] = {}
    notes: list[str] = []
    for number, module in enumerate(order["modules"]):
        own, files = _places(order, module)
        if not is_folder(files) or not is_folder(own / "objects"):
            continue
        stands[module["path"]] = ""
        head, at = _head(own), _head(own, AT)
        if head and head != at:
            if _has(_seen(order, number, None), head):
                stands[module["path"]] = head
            else:
                notes.append(f"{module['path']}: what it has committed in this submodule")
        if _changed(order, number, own, head):
            notes.append(f"{module['path']}: what it has changed in this submodule")
    return stands, notes


def _changed(order: dict[str, Any], number: int, own: Path, head: str) -> bool:
    place = _seen(order, number, own)
    if not os.path.lexists(_places(order, order["modules"][number])[1] / ".git"):
        return False  # the worker has emptied it
    try:
        git("update-ref", "--no-deref", "HEAD", head, env=place)
        if not take_index(own, place):
            git("read-tree", head, env=place)
        return bool(git("status", "--porcelain", "--ignore-submodules=all", env=place))
    except Broken:
        return True


def follow(order: dict[str, Any], place: dict[str, str], tree: str) -> None:
    """Put submodules that the worker has left alone where a new tree has them."""
    for number, module in enumerate(order["modules"]):
        own, _ = _places(order, module)
        new = tried("rev-parse", "--verify", "-q", f"{tree}:{module['path']}", env=place)
        commit, head = new.stdout.strip(), _head(own) if is_folder(own / "objects") else ""
        if not commit or not head or commit == head or head != _head(own, AT):
            continue
        seen = _seen(order, number, own)
        if not _has(seen, commit) or _changed(order, number, own, head):
            continue
        git("read-tree", "-m", "-u", head, commit, env=seen)
        theirs = {"GIT_DIR": str(own), "GIT_WORK_TREE": seen["GIT_WORK_TREE"]}
        git("update-ref", "--no-deref", "HEAD", commit, env=theirs)
        git("update-ref", AT, commit, env=theirs)
        git("read-tree", commit, env=theirs)
