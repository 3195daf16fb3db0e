"""The frame of the screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.control.taskroom import TaskRoom
from tests.tui.conftest import app_on, screen_text, until, working

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("size", [(40, 20), (160, 50)], ids=str)
async def test_the_screen_opens_at_any_size_and_a_key_leaves_it(
    shared: TaskRoom, tmp_path: Path, size: tuple[int, int]
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=size) as pilot:
        await until(pilot, lambda: "a message, or /" in screen_text(pilot.app))
        lines = screen_text(pilot.app).splitlines()
        assert len(lines) <= size[1]
        assert all(len(line) <= size[0] for line in lines)
        await pilot.press("ctrl+q")
        await until(pilot, lambda: not pilot.app.is_running)
