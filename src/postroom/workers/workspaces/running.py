"""Git as the scripts run it that do an order about a workspace inside of a sandbox (`inside.py`).

It imports the standard library only.
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
