"""A test that failed once and passed when repeated is named; a run with many of them fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).resolve().parents[2] / "conftest.py"
TEST = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({times}))
def test_it(number):
    mark = Path(__file__).with_name(f"tried-{{number}}")
    tried = mark.exists()
    mark.touch()
    assert tried
"""


@pytest.mark.parametrize("times, status, workers", [(6, 0, "0"), (7, 1, "1")])
def test_a_few_tests_may_fail_once_and_are_named(
    tmp_path: Path, times: int, status: int, workers: str
):
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    (tmp_path / "test_once.py").write_text(TEST.format(times=times), encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    outer = ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", workers, "--reruns", "1"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in outer},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert done.returncode == status, done.stdout
    assert done.stdout.count("failed once, to be mended: test_once.py::test_it") == times
