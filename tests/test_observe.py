"""A log that cannot be written costs its lines and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def _said(path: Path, call: str) -> str:
    """What a process that logs to `path` prints to its standard error."""
    code = f"""
import pathlib, sys
from postroom import observe
observe.to_file(pathlib.Path(sys.argv[1]))
observe.get_logger("postroom.test").warning({call})
"""
    words = [sys.executable, "-c", code, str(path)]
    return subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stderr


@pytest.mark.requirement("disk-full-refused")
def test_a_full_disk_makes_no_traceback_of_each_line() -> None:
    assert _said(Path("/dev/full"), "'nobody reads this'") == ""


def test_a_line_that_is_malformed_is_told(tmp_path: Path) -> None:
    assert "no number" in _said(tmp_path / "log", "'%d', 'no number'")
