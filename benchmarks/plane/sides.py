"""The two sides of the comparison: each the environment of one commit, and post rooms that run on it."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]

BEFORE = "2a2a3e4"
"""The commit that `plane` measures against: the last one before the state got ports and PostgreSQL."""

OWN = "."
"""Names this checkout, with the interpreter that runs the benchmark."""

INSTALL_TIMEOUT = 600.0

_FOLDER = PROJECT / ".venv-bench"
_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet")
_PINS = ("requirements/build.txt", "requirements/base.txt")


@dataclass(frozen=True, slots=True)
class Side:
    """One side.

    Attributes:
        name: in the result, `before` or `now`.
        commit: with a `+` if there are changes that are not committed; "" where there is no repository.
        python: its interpreter, whose environment has the package of that commit.
        tree: its files.
    """

    name: str
    commit: str
    python: str
    tree: Path


def side(name: str, wanted: str) -> Side:
    """The side that is `wanted`: a commit, whose environment is made on first use; a checkout with a `.venv`; or
    `OWN`.

    Raises:
        RuntimeError: it cannot be made.
    """
    if wanted == OWN:
        return Side(name, _described(PROJECT), sys.executable, PROJECT)
    folder = Path(wanted)
    if (python := folder / ".venv" / "bin" / "python").exists():
        return Side(name, _described(folder), str(python.absolute()), folder.resolve())
    commit = _git(PROJECT, "rev-parse", "--verify", "--short=10", f"{wanted}^{{commit}}")
    if not commit:
        raise RuntimeError(f"{wanted} is neither a commit of this repository nor a checkout")
    home = _FOLDER / f"plane-{commit}"
    _prepare(home, commit)
    return Side(name, commit, str(home / "env" / "bin" / "python"), home / "tree")


def _prepare(home: Path, commit: str) -> None:
    """The files of `commit` and an environment for them, kept for the next run."""
    tree, env, stamp = home / "tree", home / "env", home / ".installed"
    wanted = hashlib.sha256(sys.version.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="ascii") == wanted:
        return
    print(f"plane: making an environment for {commit} in {home.relative_to(PROJECT)} ...")
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    with _worktree(tree.with_name("worktree"), commit) as made:
        shutil.copytree(made, tree, ignore=shutil.ignore_patterns(".git"))
    venv.create(env, with_pip=True)
    python = env / "bin" / "python"
    _install(python, "--require-hashes", *(f"--requirement={tree / pins}" for pins in _PINS))
    _install(python, "--no-deps", "--no-build-isolation", f"--editable={tree / 'a2a'}")
    _install(python, "--no-deps", "--no-build-isolation", f"--editable={tree}")
    # Compiled now, so that no process of the measurement does it.
    _run(str(python), "-m", "compileall", "-q", str(tree / "src"), str(tree / "a2a" / "src"))
    stamp.write_text(wanted, encoding="ascii")


@contextlib.contextmanager
def _worktree(folder: Path, commit: str) -> Generator[Path]:
    _run("git", "-C", str(PROJECT), "worktree", "add", "--quiet", "--detach", str(folder), commit)
    try:
        yield folder
    finally:
        _run("git", "-C", str(PROJECT), "worktree", "remove", "--force", str(folder))


def _install(python: Path, *arguments: str) -> None:
    _run(str(python), *_PIP, *arguments)


def _run(*words: str) -> None:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stdout}{done.stderr}")


def _described(tree: Path) -> str:
    commit = _git(tree, "rev-parse", "--short=10", "HEAD")
    return commit + ("+" if commit and _git(tree, "status", "--porcelain", "-uno") else "")


def _git(tree: Path, *words: str) -> str:
    """What git prints, "" if it fails."""
    with contextlib.suppress(OSError):
        done = subprocess.run(
            ["git", "-C", str(tree), *words], capture_output=True, text=True, check=False
        )
        return done.stdout.strip() if not done.returncode else ""
    return ""
