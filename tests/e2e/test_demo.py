"""`make demo` as a person runs it: its exit status tells the truth, and nothing of it is left."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.e2e.conftest import DEADLINE, EXAMPLES
from tests.e2e.processes import living
from tools.transcript import outline, shorten, shown


@pytest.mark.slow
@pytest.mark.requirement("demo-task-completed")
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "files, told",
    [
        ({}, "There is no Python file in"),
        ({"a/bad.py": "def f(:\n", "b.py": ""}, "files: 2, lines: 1. Found syntax errors: 1."),
    ],
    ids=["empty folder", "syntax error"],
)
def test_the_demonstration_completes_its_task_on_any_folder_and_leaves_nothing(
    tmp_path: Path, files: dict[str, str], told: str
) -> None:
    folder, scratch = tmp_path / "my source", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py"), "--folder", str(folder)],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        check=False,
        env={**os.environ, "TMPDIR": str(scratch)},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"@reviewer has reviewed it: {'' if not files else 'Reviewed'}" in done.stdout
    assert told in done.stdout
    assert "demo: task completed" in done.stdout
    assert list(scratch.iterdir()) == []
    assert [process for process in living().values() if str(scratch) in process.command] == []


@pytest.mark.requirement("demo-task-completed", "docs-commands-run")
@pytest.mark.timeout(120)
def test_the_demonstration_is_kept_on_request_and_prints_what_the_readme_shows() -> None:
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        env = {**os.environ, "TMPDIR": scratch, "NO_COLOR": "1"}
        command = [sys.executable, str(EXAMPLES / "demo.py"), "--keep"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * DEADLINE, check=False, env=env
        )
        assert done.returncode == 0, done.stdout + done.stderr
        try:
            (state,) = re.findall(r"export POSTROOM_STATE=(\S+)", done.stdout)
            assert "@reviewer" in ask(env, state, "status")
        finally:
            ask(env, next(Path(scratch).glob("*/state")), "down")

        assert "postroom down; rm -r " in done.stdout
        assert [process for process in living().values() if scratch in process.command] == []
    printed, _, _ = shorten(done.stdout).partition("demo: task completed")
    page, _, _ = shown().partition("$ postroom down")
    assert outline(page) == outline(printed)


def ask(env: dict[str, str], state: str | Path, *words: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "postroom", "--state", str(state), *words]
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=2 * DEADLINE, check=True, env=env
    ).stdout
