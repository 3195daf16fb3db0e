"""When the demonstration is in the screen, and that it uses a real coding agent only if the person says so."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.examples.program import EXAMPLES


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("scene")


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The demonstration as a person at a terminal has it."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    for name in ("CI", "DEMO", "POSTROOM_NO_TUI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    demo = importlib.import_module("demo")
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), Seat())
    monkeypatch.setattr(demo, "sys", SimpleNamespace(**streams))
    return demo


class Seat:
    """A terminal."""

    def isatty(self) -> bool:
        return True


class Pipe(Seat):
    def isatty(self) -> bool:
        return False


def test_at_a_terminal_the_demonstration_is_in_the_screen(demo: ModuleType):
    assert demo.in_screen(None)


@pytest.mark.parametrize(
    "variable", [("CI", "true"), ("DEMO", "plain"), ("POSTROOM_NO_TUI", "1"), ("TERM", "dumb")]
)
def test_a_variable_asks_for_the_transcript(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
):
    monkeypatch.setenv(*variable)
    assert not demo.in_screen(None)


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_a_pipe_or_a_folder_asks_for_the_transcript(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, stream: str
):
    assert not demo.in_screen(Path("src"))
    monkeypatch.setattr(demo.sys, stream, Pipe())
    assert not demo.in_screen(None)


def installed(monkeypatch: pytest.MonkeyPatch, folder: Path, *programs: str, **keys: str) -> None:
    """Only these programs and keys are there."""
    for name in programs:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    for name in ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in keys.items():
        monkeypatch.setenv(name, value)


def answering(word: str, questions: list[str]) -> Any:
    def ask(question: str) -> str:
        questions.append(question)
        return word

    return ask


@pytest.mark.parametrize(
    "programs, keys",
    [((), {"ANTHROPIC_API_KEY": "k"}), (("claude",), {}), (("claude",), {"OPENAI_API_KEY": "k"})],
    ids=["a key alone", "a program alone", "another key"],
)
def test_nobody_is_asked_without_a_program_and_its_key(
    scene: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    programs: tuple[str, ...],
    keys: dict[str, str],
):
    installed(monkeypatch, tmp_path, *programs, **keys)
    questions: list[str] = []
    assert scene.choose_fixer(answering("y", questions)) == ()
    assert questions == []


@pytest.mark.parametrize(
    "said, used", [("", False), ("n", False), ("why?", False), ("y", True), ("Yes ", True)]
)
def test_a_real_coding_agent_is_used_only_after_a_yes(
    scene: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, used: bool
):
    installed(monkeypatch, tmp_path, "codex", OPENAI_API_KEY="k")
    questions: list[str] = []
    chosen = scene.choose_fixer(answering(said, questions))
    assert len(questions) == 1
    assert "codex is installed" in questions[0]
    assert ("codex" in chosen) is used
