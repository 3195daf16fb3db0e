"""A test that waits for ever ends with its time limit, and so does what cleans up behind a test that failed."""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

CONFTEST = Path(__file__).resolve().parents[2] / "conftest.py"

MODULES = {
    "test_cleaning": """
import threading
import pytest

@pytest.fixture
def waiting():
    yield
    threading.Event().wait()

def test_it(waiting):
    assert False

def test_next():
    pass
""",
    "test_running": """
import asyncio
import pytest

pytestmark = pytest.mark.anyio
cleaned = []

@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"

@pytest.fixture(scope="module")
async def shared():
    yield "shared"
    cleaned.append("shared")

@pytest.fixture
async def own():
    yield
    await asyncio.sleep(0)
    cleaned.append("own")

async def test_it(shared, own):
    try:
        await asyncio.Event().wait()
    finally:
        cleaned.append("test")

async def test_next(shared):
    await asyncio.sleep(0)
    assert cleaned == ["test", "own"]
""",
}


def test_what_waits_for_ever_is_ended_and_the_next_tests_of_its_file_run(tmp_path: Path) -> None:
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 0.5\n", encoding="utf-8")
    outer = ("CI", "PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-rfEp"],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name not in outer},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    said = {" ".join(line.split()[:2]) for line in done.stdout.splitlines() if "::" in line}
    assert {
        "FAILED test_cleaning.py::test_it",
        "ERROR test_cleaning.py::test_it",
        "PASSED test_cleaning.py::test_next",
        "FAILED test_running.py::test_it",
        "PASSED test_running.py::test_next",
    } <= said, done.stdout
    assert "2 failed, 2 passed, 1 error" in done.stdout.splitlines()[-1]


def test_what_a_traceback_has_without_a_line_is_left_out() -> None:
    """Python 3.11 has such places where a signal comes as a coroutine begins; pytest ends the whole run there."""
    spec = importlib.util.spec_from_file_location("hooks_of_a_run", CONFTEST)
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    places = [SimpleNamespace(tb_lineno=line, tb_next=None) for line in (3, None, None, 7, None)]
    for place, further in itertools.pairwise(places):
        place.tb_next = further

    hooks.show_lines_alone(places[0])

    assert places[0].tb_next is places[3]
    assert places[3].tb_next is None


def test_a_source_that_cannot_be_parsed_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_bytes(CONFTEST.read_bytes())
    (tmp_path / "test_unparsed.py").write_text("""
from _pytest._code import source

def parse(*_values):
    raise SystemError("AST constructor recursion depth mismatch")

def test_it(monkeypatch):
    monkeypatch.setattr(source.ast, "parse", parse)
    assert 1 == 2

def test_next():
    pass
""")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "assert 1 == 2" in done.stdout
    assert "1 failed, 1 passed" in done.stdout.splitlines()[-1]
