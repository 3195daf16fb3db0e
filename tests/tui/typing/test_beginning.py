"""The dialog that offers a worker for a repository: by keys, in the screen on a real control plane."""

from __future__ import annotations

import shlex
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from postroom.tui.app import PostroomApp
from postroom.tui.beginning import Beginning
from postroom.tui.here import Here
from postroom.tui.news import Typed
from tests.control.taskroom import TaskRoom, emptied
from tests.templates.machine import executable
from tests.tui.conftest import announced, app_on, screen_text, until, working
from tests.workspaces.bench import repository

pytestmark = pytest.mark.anyio

NOT_NOW = "not now"


@pytest.fixture
async def room(shared: TaskRoom, state: Path) -> AsyncGenerator[Path]:
    """The state folder of a post room without workers."""
    async with emptied(shared):
        yield announced(shared, state)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


@pytest.fixture
def app_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The repository in which the person is, whose machine has two agents and the key of one."""
    home = tmp_path / "home"
    folder = repository(home / "my app")
    executable(home / "bin" / "codex")
    executable(home / "bin" / "claude")
    for name, value in (
        ("HOME", str(home)),
        ("PATH", str(home / "bin")),
        ("OPENAI_API_KEY", "sk-hidden"),
        ("ANTHROPIC_API_KEY", ""),
        ("CLAUDE_CODE_OAUTH_TOKEN", ""),
    ):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    return folder


def here(state: Path, *, offers: bool = True) -> Here:
    return Here(state, lambda: None, "postroom up", "the post room was started", offers)


class Lines:
    """What the dialog types, which is not done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []

        def typed(_: PostroomApp, event: Typed) -> None:
            self.lines.append(event.text)

        monkeypatch.setattr(PostroomApp, "on_typed", typed)

    @property
    def words(self) -> list[str]:
        (line,) = self.lines
        return shlex.split(line)


async def opened(pilot: Pilot[Any]) -> str:
    """Wait for the dialog until its keys count; what it shows."""
    await until(pilot, lambda: NOT_NOW in screen_text(pilot.app))
    dialog = pilot.app.screen
    assert isinstance(dialog, Beginning)
    await until(pilot, lambda: time.monotonic() > dialog.guarded_until)
    return screen_text(pilot.app)


@pytest.mark.requirement("one-word-offers")
@pytest.mark.parametrize("size", [(80, 24), (40, 20)])
async def test_enter_through_the_defaults_starts_an_agent_that_asks_on_this_repository(
    room: Path, app_folder: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
):
    typed = Lines(monkeypatch)
    async with app_on(room, size=size, here=here(room)) as pilot:
        shown = await opened(pilot)
        for wanted in ("Codex", "1 of 2", "OPENAI_API_KEY", "~/my app", "ask me"):
            assert wanted in shown
        assert "sk-hidden" not in shown
        await pilot.press(*"mend it", "enter")
        await until(pilot, lambda: typed.lines)
    assert typed.words == [
        *("/spawn", "codex", "--workspace", str(app_folder), "--store-key", "--task", "mend it")
    ]


@pytest.mark.requirement("one-word-offers")
async def test_other_choices_are_taken_by_keys_and_what_is_missing_is_said(
    room: Path, app_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    typed = Lines(monkeypatch)
    async with app_on(room, here=here(room)) as pilot:
        await opened(pilot)
        await pilot.press("up", "up", "ctrl+u", *"/no", "enter")
        assert "/no is not a folder" in screen_text(pilot.app)
        await pilot.press("ctrl+u", *str(tmp_path), "up", "right", "enter")
        await until(pilot, lambda: "Claude Code has no key yet" in screen_text(pilot.app))
        assert typed.lines == []
        await pilot.press("left", "down", "down", "right")
        assert "asks for nothing" in screen_text(pilot.app)
        await pilot.press("enter")
        await until(pilot, lambda: typed.lines)
    assert typed.words[1:] == [
        *("codex", "--workspace", str(tmp_path), "--store-key", "--autonomous")
    ]


@pytest.mark.requirement("one-word-offers")
async def test_without_a_key_the_command_that_stores_one_is_shown_and_enter_goes_on_once_it_is_kept(
    shared: TaskRoom, room: Path, app_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "")
    typed = Lines(monkeypatch)
    async with app_on(room, here=here(room)) as pilot:
        shown = " ".join((await opened(pilot)).replace("│", " ").split())
        for wanted in (
            "another terminal:",
            "credential add anthropic",
            "api.anthropic.com",
            "1 of 2",
        ):
            assert wanted in shown
        await pilot.press(*"mend it", "enter")
        await until(pilot, lambda: "Claude Code has no key yet" in screen_text(pilot.app))
        body = {"name": "mine", "host": "api.anthropic.com", "header": "x-api-key: {secret}"}
        kept = await shared.api.post("/v1/credentials", json={**body, "secret": "sk-hidden"})
        assert kept.status_code == 201, kept.text
        try:
            await pilot.press("enter")
            await until(pilot, lambda: typed.lines)
        finally:
            await shared.api.delete("/v1/credentials/mine")
    assert typed.words[1:] == ["claude-code", "--workspace", str(app_folder), "--task", "mend it"]


async def test_esc_leaves_it_and_spawn_alone_brings_it_back(room: Path, app_folder: Path):
    assert app_folder
    async with app_on(room, here=here(room)) as pilot:
        await opened(pilot)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Beginning))
        await pilot.press("i", *"/spawn", "enter")
        await opened(pilot)


async def test_it_does_not_open_where_a_command_names_what_to_look_at_or_in_a_home(
    room: Path, app_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    async with app_on(room, here=here(room, offers=False)) as pilot:
        await until(pilot, lambda: "nothing needs you" in screen_text(pilot.app))
        await pilot.pause(0.3)
        assert not isinstance(pilot.app.screen, Beginning)
    monkeypatch.chdir(app_folder.parent)
    async with app_on(room, size=(100, 24), here=here(room)) as pilot:
        await until(pilot, lambda: "this is your home folder" in screen_text(pilot.app))
        assert not isinstance(pilot.app.screen, Beginning)


async def test_what_waits_for_the_person_comes_first(
    shared: TaskRoom, state: Path, app_folder: Path
):
    assert app_folder
    async with working(shared, state, "site") as coder:
        await coder.asks()
        async with app_on(coder, size=(100, 24), here=here(coder.state)) as pilot:
            await until(pilot, lambda: "/spawn offers one" in screen_text(pilot.app))
            assert not isinstance(pilot.app.screen, Beginning)
