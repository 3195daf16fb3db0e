"""`make demo` as a person runs it: its exit status tells the truth, and nothing of it is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import DEADLINE, EXAMPLES
from tests.e2e.processes import living


@pytest.mark.requirement("demo-task-completed")
@pytest.mark.parametrize(
    "files, told",
    [
        ({}, "There is no Python file in"),
        ({"one.py": "import this\n"}, "files: 1, lines: 1. Found missing docstrings: 1."),
        ({"a/bad.py": "def f(:\n", "b.py": ""}, "files: 2, lines: 1. Found syntax errors: 1."),
    ],
    ids=["empty folder", "one file", "syntax error"],
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
        timeout=DEADLINE,
        check=False,
        env={**os.environ, "TMPDIR": str(scratch)},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"@reviewer has reviewed it: {'' if not files else 'Reviewed'}" in done.stdout
    assert told in done.stdout
    assert "demo: task completed" in done.stdout
    assert list(scratch.iterdir()) == []
    assert [process for process in living().values() if str(scratch) in process.command] == []
