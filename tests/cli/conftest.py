from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from postroom.cli.root import run
from tests.client.standin import Standin, status
from tests.prefork import prefork

ROOT = Path(__file__).parents[2]
SOURCE = os.pathsep.join(str(ROOT / folder) for folder in ("src", "a2a/src"))
LIMIT = 40.0


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def standin(tmp_path: Path) -> Iterator[Standin]:
    """A post room that runs on tmp_path."""
    server = Standin()
    server.announce(tmp_path)
    server.answer("GET /v1/status", status())
    yield server
    server.close()


@pytest.fixture
def postroom(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process, which is what `python -m postroom` does too."""

    def call(*arguments: str) -> Ended:
        code = run(["--state", str(tmp_path), *arguments])
        said = capfd.readouterr()
        return Ended(code, said.out, said.err)

    return call


def environment(**changes: str) -> dict[str, str]:
    """Ours, without what a person's shell might add to the output, in the line mode wherever it runs."""
    kept = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "TERM", "POSTROOM_STATE"}}
    usual = {"PYTHONPATH": SOURCE, "TERM": "xterm", "COLUMNS": "100", "POSTROOM_NO_TUI": "1"}
    return kept | usual | changes


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "postroom", *arguments]


def spawned(
    arguments: Sequence[str], *, stdin: str | None = None, env: dict[str, str] | None = None
) -> Ended:
    """Runs the command line as a process, its input a pipe.

    An environment may be about the start of the interpreter, so with one it is started anew.
    """
    if env is None:
        done = prefork().run(arguments, environment(), stdin, LIMIT)
        return Ended(done.returncode, done.stdout, done.stderr)
    ended = subprocess.run(
        command(*arguments),
        input=stdin or "",
        env=env,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=LIMIT,
        check=False,
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)
