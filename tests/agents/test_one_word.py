"""From a clone of a person's own project to a merged change: real Claude Code or Codex, 80x24, by keys alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.agents.conftest import SECRET
from tests.agents.programs import CLAUDE, CODEX, Agent, installed
from tests.e2e.conftest import gone, until
from tests.fakes.model.server import FakeModel
from tests.templates.machine import link
from tests.tui.real.console import PyteConsole, in_pyte, left, shows
from tests.workspaces.bench import git, repository

# The first test may have to install the agents.
pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]

TASK = "EDIT:[{place}added.txt]=[written by an agent]"
MOST_KEYS = 12
"""Keys of a person from the clone to the merged change, without the words `postroom` and the task's."""


class Person:
    """Who sits at the terminal, and counts the keys."""

    def __init__(self, console: PyteConsole) -> None:
        self.console = console
        self.keys = 0

    def press(self, *keys: str) -> None:
        for key in keys:
            self.keys += 1
            self.console.type(key)

    async def answers(self, key: str, gone: str) -> None:
        """Press a key that may come too early for a dialog, until that has gone; each time counts."""
        while True:
            self.press(key)
            with suppress(TimeoutError):
                await asyncio.wait_for(shows(self.console, lambda text: gone not in text), 3)
                return

    async def sees(self, *wanted: str) -> str:
        return await shows(self.console, lambda text: all(each in text for each in wanted))


@pytest.fixture
async def home(tmp_path: Path) -> AsyncGenerator[Path]:
    """An empty home, and the clone of a project in it; a post room that was started from it is ended."""
    repository(tmp_path / "app")
    yield tmp_path
    file = tmp_path / "state" / "server.json"
    if file.exists():
        pid = json.loads(file.read_text())["pid"]
        os.kill(pid, signal.SIGTERM)
        await asyncio.to_thread(until, lambda: gone(pid))


@pytest.mark.requirement("one-word-offers")
@pytest.mark.parametrize(
    "agent, program, key, base, place",
    [
        (CLAUDE, "claude", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "/workspace/"),
        (CODEX, "codex", "OPENAI_API_KEY", "OPENAI_BASE_URL", ""),
    ],
    ids=["claude", "codex"],
)
async def test_from_a_clone_to_a_merged_change_by_keys_alone(
    home: Path, agent: Agent, program: str, key: str, base: str, place: str
):
    link(home / "bin" / program, installed(agent))
    app = home / "app"
    with FakeModel() as model:
        path = "/v1" if program == "codex" else ""
        env = {
            "HOME": str(home),
            "CI": "",
            "PATH": f"{home}/bin:/usr/local/bin:/usr/bin:/bin",
            "POSTROOM_STATE": str(home / "state"),
            "POSTROOM_HTTP_PORT": "0",
            "POSTROOM_NATS_PORT": "0",
            "POSTROOM_EGRESS_ALLOW_PRIVATE": f"127.0.0.1:{model.port}",
            key: SECRET,
            base: f"{model.url}{path}",
        }
        async with in_pyte(folder=app, env=env) as console:
            person = Person(console)
            await person.sees("an agent for this repository", "not now")
            await asyncio.sleep(0.5)  # what is pressed as a dialog opens is not for it
            console.type(TASK.format(place=place))
            await person.answers("\r", "not now")
            await person.sees("added.txt", "allow")
            await asyncio.sleep(0.6)
            person.press("y")
            await person.sees("■ completed")
            person.press("d")
            await person.sees("+written by an agent", "m merges it")
            person.press("m")
            await person.sees("would be merged into main", "y: yes")
            await asyncio.sleep(0.5)
            await person.answers("y", "y: yes")
            await person.sees("u undo merge")
            person.press("\x1b")
            await person.sees("1 rooms")
            person.press("q")
            await left(console)
        assert git(app, "status", "--porcelain") == ""
        assert (app / "added.txt").read_text().strip() == "written by an agent"
        assert model.asked()[0].headers["x-api-key" if program == "claude" else "authorization"]
    assert person.keys <= MOST_KEYS
