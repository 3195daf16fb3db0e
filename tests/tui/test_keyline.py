"""The keys at the bottom, and that they act where they are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.lines.text import columns
from postroom.tui.app import PostroomApp
from postroom.tui.news import Chosen, Target
from postroom.tui.sidebar.pane import Sidebar
from postroom.tui.worker.pane import WorkerPane
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import Doing, app_on, screen_text, until, working

pytestmark = pytest.mark.anyio


def bottom(app: object) -> str:
    assert isinstance(app, PostroomApp)
    return screen_text(app).splitlines()[-1]


def knows(app: object, coder: Doing) -> bool:
    assert isinstance(app, PostroomApp)
    return bool(app.target and app.room and app.room.worker(coder.uid))


@pytest.mark.parametrize(
    "size, shown",
    [
        ((40, 20), ("i type", "? help", "q leave")),
        ((80, 24), ("d diff", "t tasks", "s stop", "r restart", "i type", "? help", "q leave")),
    ],
    ids=str,
)
async def test_help_and_the_way_out_stand_at_the_bottom_of_each_pane_and_nothing_is_cut(
    shared: TaskRoom, tmp_path: Path, size: tuple[int, int], shown: tuple[str, ...]
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=size) as pilot:
        await until(pilot, lambda: knows(pilot.app, coder))
        pilot.app.post_message(Chosen(Target("coder", coder.uid)))
        for key, other in (("3", "1 rooms"), ("2", "3 worker"), ("1", "3 worker")):
            await pilot.press(key)
            await until(pilot, lambda other=other: other in bottom(pilot.app))
            await until(pilot, lambda: all(each in bottom(pilot.app) for each in shown))
            assert columns(bottom(pilot.app)) <= size[0]
            assert bottom(pilot.app).rstrip().endswith(("q leave", "^p palette"))


async def test_the_keys_of_a_worker_act_in_the_conversation_with_it(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await until(pilot, lambda: knows(pilot.app, coder))
        pilot.app.post_message(Chosen(Target("coder", coder.uid)))
        await until(pilot, lambda: "s stop r restart 1 rooms" in bottom(pilot.app))
        await pilot.press("s")
        await until(pilot, lambda: "stop @coder?" in screen_text(pilot.app))


async def test_what_is_opened_elsewhere_is_selected_in_the_list_and_3_shows_what_is_selected(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await until(pilot, lambda: knows(pilot.app, coder))
        sidebar, pane = pilot.app.query_one(Sidebar), pilot.app.query_one(WorkerPane)
        there = Target("coder", coder.uid)
        pilot.app.post_message(Chosen(there))
        await until(pilot, lambda: sidebar.target() == there)
        pilot.app.post_message(Chosen(Target("main")))
        await until(pilot, lambda: sidebar.target() == Target("main"))

        await pilot.press("1", "down", "3")
        await until(pilot, lambda: pane.has_focus_within)
        assert pane.target == sidebar.target() == there
