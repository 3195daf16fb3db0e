"""Submodules of a worker's repository, inside of a sandbox; they borrow the objects of the person's.

`modules` of an order lists those whose objects the sandbox shows, each with `path` in the workspace, `folder` of its
git directory in the one of the workspace, `holder` (that of the repository that it is a submodule of), `name`, the
`commit` that is recorded, `format`, `shallow` and `objects`. Where a submodule was put is kept as `refs/postroom/at` in
it: what the worker moves is its own work, and what it does not move says nothing, however old it is.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from postroom.workers.workspaces.running import (
    Broken,
    borrow,
    cut,
    fresh,
    git,
    is_folder,
    take_index,
    tried,
)

AT = "refs/postroom/at"
Module = dict[str, Any]


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
