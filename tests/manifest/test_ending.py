"""What a run of the tests has started ends with it, also where the run is killed."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEST = """
import subprocess, sys, time

def test_it():
    # With an environment of its own, as most post rooms of tests have it.
    words = [sys.executable, "-c", "import time; time.sleep(600)"]
    left = subprocess.Popen(words, env={{}}, start_new_session=True)
    with open({told!r}, "w") as told:
        told.write(f"{{left.pid}}\\n")
    {then}
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="Linux alone")
@pytest.mark.parametrize(
    "workers, ends",
    [("0", signal.SIGKILL), ("1", signal.SIGKILL), ("1", signal.SIGTERM), ("0", None)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_what_a_run_left_behind_ends_with_it(
    tmp_path: Path, workers: str, ends: signal.Signals | None
):
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "tests/guard.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    told = tmp_path / "told"
    os.mkfifo(told)
    then = "time.sleep(600)" if ends else ""
    (tmp_path / "test_left.py").write_text(TEST.format(told=str(told), then=then), encoding="utf-8")
    outer = ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", workers],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in outer},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with run:
        left = os.pidfd_open(int(told.read_text(encoding="utf-8")))
        if ends:
            run.send_signal(ends)
        run.wait(60)
    ended, _, _ = select.select([left], [], [], 60)
    os.close(left)
    assert ended
