"""`make demo` as a person runs it: its exit status tells the truth, and nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import subprocess
import sys
import tempfile
import termios
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from postroom.tui.needs import dialog
from postroom.tui.typing.line import SaidLine
from tests.e2e.conftest import DEADLINE, EXAMPLES
from tests.e2e.processes import living
from tools.transcript import outline, shorten, shown


@pytest.mark.slow
@pytest.mark.requirement("docs-commands-run")
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


@pytest.mark.requirement("docs-commands-run")
@pytest.mark.timeout(240)
def test_the_demonstration_is_kept_on_request_and_prints_what_the_readme_shows() -> None:
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        env = {**os.environ, "TMPDIR": scratch, "NO_COLOR": "1"}
        command = [sys.executable, str(EXAMPLES / "demo.py"), "--keep"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=200, check=False, env=env
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


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_transcript_fits_a_terminal_of_80_columns_and_breaks_no_word() -> None:
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (24, 80))
    with tempfile.TemporaryDirectory(prefix="e2e-") as scratch:
        env = {**os.environ, "TMPDIR": scratch, "DEMO": "plain", "NO_COLOR": "1", "TERM": "xterm"}
        for name in ("COLUMNS", "LINES"):
            env.pop(name, None)
        command = [sys.executable, str(EXAMPLES / "demo.py")]
        with subprocess.Popen(
            command, env=env, stdin=subprocess.DEVNULL, stdout=child, stderr=child
        ) as demo:
            os.close(child)
            printed = b""
            with suppress(OSError):  # the end, as a pseudo terminal says it
                while data := os.read(parent, 65536):
                    printed += data
            assert demo.wait(DEADLINE) == 0, printed.decode()
    os.close(parent)
    lines = printed.decode().splitlines()
    too_long = [line for line in lines if len(line) > 80 and len(line.split()) > 1]
    assert too_long == []
    assert any("examples/lead.toml" in line for line in lines)


@pytest.mark.requirement("docs-commands-run")
@pytest.mark.timeout(120)
@pytest.mark.anyio
async def test_in_a_terminal_the_demonstration_is_answered_in_the_screen_and_ends_with_a_branch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    scene = import_module("scene")
    monkeypatch.setattr(dialog, "WORD", 0.0)  # these keys follow each other faster than a person's

    asked: list[str] = []

    async def answer(pilot: Pilot[int]) -> bool:
        """Do what the guide says; whether all is done."""
        said = str(pilot.app.screen_stack[0].query_one("#guide", Static).content)
        if "n opens it" in said:
            asked.append("question" if "question" in said else "approval")
            in_dialog = len(pilot.app.screen_stack) > 1
            keys = {"question": ("1", "enter"), "approval": ("y",)}[asked[-1]]
            await pilot.press(*(keys if in_dialog else ("n",)))
        return said.startswith("Done.")

    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        monkeypatch.setattr(tempfile, "tempdir", scratch)
        with scene.prepared(pause=0.0) as (app, folder):
            async with app.run_test(size=(120, 34)) as pilot:
                async with asyncio.timeout(90):
                    while not await answer(pilot):
                        await pilot.pause(0.05)
                    branch = folder / ".git" / "refs" / "heads" / "postroom" / "fixer"
                    while not branch.exists():  # it comes back when the task has ended
                        await pilot.pause(0.05)
            lines = scene.what_happened(folder.parent / "state")
        assert [line.split()[:2] for line in lines[1:]] == [
            ["@fixer", "completed:"],
            ["@reviewer", "completed:"],
            ["you", "allowed"],
            ["you", "allowed"],
        ]
        assert asked.index("question") < asked.index("approval")
        assert list(Path(scratch).iterdir()) == []


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.anyio
async def test_a_coding_agent_that_cannot_be_started_leaves_the_task_to_the_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    scene = import_module("scene")
    broken = ("spawn", "no-such-template", "--name", "fixer", "--project", "demo")
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        monkeypatch.setattr(tempfile, "tempdir", scratch)
        with scene.prepared(pause=0.0, choose=lambda: broken) as (app, _):
            async with app.run_test(size=(80, 24)) as pilot:
                async with asyncio.timeout(90):
                    while app.room is None or not (worker := app.room.worker("fixer")):
                        await pilot.pause(0.05)
                assert worker["template"].endswith("fixer.toml")
                said = " ".join(text for _, text, _ in app.query_one(SaidLine).kept)
                assert "no-such-template" in said
                assert "the script of the demonstration does the task" in said


def ask(env: dict[str, str], state: str | Path, *words: str) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "postroom", "--state", str(state), *words]
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=2 * DEADLINE, check=True, env=env
    ).stdout
