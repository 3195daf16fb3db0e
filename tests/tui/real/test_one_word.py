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

from tests.e2e.conftest import gone, until
from tests.tui.real.console import in_pyte, left, shows

pytestmark = pytest.mark.anyio

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
