"""One pane over the whole width, by one key."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.tui.app import PostroomApp
from postroom.tui.news import Chosen, Target
from postroom.tui.sidebar.pane import Sidebar
from postroom.tui.talk.pane import Talk
from postroom.tui.worker.pane import WorkerPane
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import app_on, screen_text, until, working

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("screen-opens")
@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
async def test_enter_shows_a_pane_over_the_whole_width_and_back(
    shared: TaskRoom, tmp_path: Path, size: tuple[int, int]
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=size) as pilot:
        app = pilot.app
        assert isinstance(app, PostroomApp)
        await coder.report({"type": "text", "text": "**Two** of " + "x" * 60})
        app.post_message(Chosen(Target("coder", coder.uid)))
        app.look("worker")
        await until(pilot, lambda: "Two of" in screen_text(app))
        pane, talk, left = app.query_one(WorkerPane), app.query_one(Talk), app.query_one(Sidebar)
        before = pane.size.width
        app.look("worker")
        await pilot.press("enter")
        await until(pilot, lambda: pane.size.width == size[0])
        assert "Two of " + "x" * 60 in screen_text(app)
        assert not left.is_on_screen
        await pilot.press("2")
        await until(pilot, lambda: talk.size.width == size[0])
        await pilot.press("3", "enter")
        await until(pilot, lambda: pane.size.width == before)
        await pilot.press("enter", "1")  # the list is never hidden from who goes there
        await until(pilot, lambda: left.is_on_screen and pane.size.width == before)
