"""`postroom` and Enter where nothing runs yet: in an empty home, by keys alone, at 80x24."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from postroom.client.http import Client
from tests.cli.terminal import Terminal
from tests.e2e.conftest import gone, until
from tests.templates.machine import executable
from tests.tui.real.console import in_pyte, left, shows
from tests.workspaces.bench import repository

pytestmark = pytest.mark.anyio

PIN = "4711"
PORTS = {"POSTROOM_HTTP_PORT": "0", "POSTROOM_NATS_PORT": "0"}


@pytest.fixture
async def home(tmp_path: Path) -> AsyncGenerator[Path]:
    """An empty home; a post room that was started from it is ended."""
    yield tmp_path
    file = tmp_path / "state" / "server.json"
    if file.exists():
        pid = json.loads(file.read_text())["pid"]
        os.kill(pid, signal.SIGTERM)
        await asyncio.to_thread(until, lambda: gone(pid))


def surroundings(home: Path, **more: str) -> dict[str, Any]:
    state = {"POSTROOM_STATE": str(home / "state")}
    return {"HOME": str(home), "CI": "", "SSH_CONNECTION": "", **state, **PORTS, **more}


@pytest.mark.requirement("one-word-starts")
async def test_two_terminals_at_once_start_one_post_room_which_outlives_both_screens(home: Path):
    env = surroundings(home)
    async with in_pyte(**env) as one, in_pyte(**env) as other:
        for console in (one, other):
            await shows(console, "nothing needs you")
        told = [b"goes on after this" in console.raw for console in (one, other)]
        assert sorted(told) == [False, True]
        pid = json.loads((home / "state" / "server.json").read_text())["pid"]
        for console in (one, other):
            console.type("q")
            await left(console)
    assert not gone(pid)


@pytest.mark.requirement("one-word-starts")
async def test_the_screen_says_how_a_post_room_that_went_down_is_started_and_does_it_by_a_key(
    home: Path,
):
    async with in_pyte(**surroundings(home)) as console:
        await shows(console, "nothing needs you")
        pid = json.loads((home / "state" / "server.json").read_text())["pid"]
        os.kill(pid, signal.SIGTERM)
        await shows(console, "u starts it (postroom")
        await asyncio.to_thread(until, lambda: gone(pid))
        console.type("u")
        await shows(console, "nothing needs you")
        console.type("q")
        await left(console)


@pytest.mark.requirement("one-word-offers")
async def test_without_the_screen_the_same_is_asked_in_lines(home: Path, tmp_path: Path):
    folder = repository(tmp_path / "app")
    executable(tmp_path / "bin" / "goose")
    env = surroundings(home, PATH=f"{tmp_path}/bin:/usr/bin:/bin", OPENROUTER_API_KEY="sk-hidden")
    with Terminal("--no-tui", screen=True, folder=folder, **env) as terminal:
        terminal.read_until("Start one? [Y/n]")
        assert "end it with: postroom" in terminal.plain
        assert "OPENROUTER_API_KEY of this shell" in terminal.plain
        terminal.type("\n")
        terminal.read_until("works on [")
        terminal.type("/no\n")
        terminal.read_until("/no is not a folder")
        terminal.type("\n")
        terminal.read_until("how far [1]")
        assert "2 autonomous in the sandbox" in terminal.plain
        terminal.type("\n")
        terminal.read_until("first task")
        terminal.type("\n")
        terminal.ended()
        assert "OPENROUTER_API_KEY is kept as the credential 'openrouter'" in terminal.plain
        assert f"postroom/goose of {folder}" in terminal.plain
        assert "sk-hidden" not in terminal.plain
    with Terminal("--no-tui", screen=True, folder=folder, **env) as terminal:
        assert terminal.ended() == 0
        assert "@goose" in terminal.plain


@pytest.mark.requirement("one-word-offers")
@pytest.mark.requirement("approval-pin-demanded")
async def test_no_agent_goes_free_without_the_pin_of_who_has_set_one(home: Path, tmp_path: Path):
    folder = repository(tmp_path / "app")
    executable(tmp_path / "bin" / "goose")
    env = surroundings(home, PATH=f"{tmp_path}/bin:/usr/bin:/bin")
    with Terminal("--no-tui", screen=True, folder=folder, **env) as terminal:
        assert terminal.ended() == 0
        for wanted in ("to store one: postroom", "credential add openrouter", "with a key stored"):
            assert wanted in terminal.plain
    with Client.at(home / "state", "") as client:
        client.set_pin(PIN)
        env |= {"OPENROUTER_API_KEY": "sk-hidden"}
        with Terminal("--no-tui", screen=True, folder=folder, **env) as terminal:
            for asked, answered in (
                ("Start one? [Y/n]", ""),
                ("works on [", ""),
                ("how far [1]", "2"),
                ("first task", ""),
                ("PIN:", PIN),
            ):
                assert not client.status()["workers"]
                terminal.read_until(asked)
                terminal.type(f"{answered}\n")
            terminal.ended()
        async with in_pyte(folder=folder, **env) as console:
            await shows(console, "@goose")
            console.type("i/spawn\r")
            await shows(console, "how far")
            await asyncio.sleep(0.5)  # what is pressed as a dialog opens is not for it
            console.type("\x1b[A")
            console.type("\x1b[C")
            await shows(console, "asks for nothing")
            console.type("\r")
            await shows(console, "your PIN")
            assert [worker["nick"] for worker in client.status()["workers"]] == ["goose"]
            console.type(f"{PIN}\r")
            await shows(console, "spawned @goose-2")
            console.type("\x11")
            await left(console)
        assert {worker["autonomy"] for worker in client.status()["workers"]} == {"all"}
