"""The left pane, with a real control plane."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual import events

from postroom.client.http import AsyncClient
from postroom.projection.changes import Change
from postroom.protocol.shapes import Status
from postroom.tui.app import PostroomApp
from postroom.tui.news import Chosen, NeedChosen, Snapshot
from postroom.tui.sidebar.pane import Sidebar
from postroom.tui.typing.line import TypingLine
from tests.control.doing import REQUEST
from tests.control.taskroom import SECONDS, TaskRoom
from tests.tui.conftest import app_on, doing, screen_text, until, working

pytestmark = pytest.mark.anyio


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the sidebar sends."""
    said: list[str] = []
    send = Sidebar.post_message

    def noted(self: Sidebar, message: object) -> bool:
        if isinstance(message, Chosen):
            said.append(str(message.target))
        if isinstance(message, NeedChosen):
            said.append(f"need {message.id}")
        return send(self, message)  # ty: ignore[invalid-argument-type]

    monkeypatch.setattr(Sidebar, "post_message", noted)
    return said


def key(app: object) -> str:
    assert isinstance(app, PostroomApp)
    selected = app.query_one(Sidebar).selected
    return selected.key if selected else ""


def row_of(app: object, text: str) -> int:
    assert isinstance(app, PostroomApp)
    lines = screen_text(app).splitlines()  # of the left pane alone
    return next((y for y, line in enumerate(lines) if text in line[:25]), -1)


@pytest.mark.parametrize("size", [(40, 20), (80, 24)], ids=str)
async def test_what_needs_the_person_stands_first_and_enter_opens_it(
    shared: TaskRoom, tmp_path: Path, told: list[str], size: tuple[int, int]
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=size) as pilot:
        await coder.asks()
        await until(pilot, lambda: "needs you (1)" in screen_text(pilot.app))
        lines = screen_text(pilot.app).splitlines()
        assert "1 needs you" in lines[0]
        assert row_of(pilot.app, "needs you (1)") < row_of(pilot.app, "! @coder")
        assert row_of(pilot.app, "! @coder") < row_of(pilot.app, "#main")
        await pilot.press("home", "enter")
        await until(pilot, lambda: f"need {REQUEST}" in told)


async def test_panes_say_that_they_load_until_there_is_something(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    held, asked = asyncio.Event(), AsyncClient.status

    async def slow(client: AsyncClient) -> Status:
        await asyncio.wait_for(held.wait(), SECONDS)
        return await asked(client)

    monkeypatch.setattr(AsyncClient, "status", slow)
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        try:
            await until(pilot, lambda: "loading ..." in screen_text(pilot.app))
            assert "@coder" not in screen_text(pilot.app)
        finally:
            held.set()
        await until(pilot, lambda: "@coder" in screen_text(pilot.app))
        await until(pilot, lambda: "loading ..." not in screen_text(pilot.app))


async def test_the_selection_stays_on_a_worker_when_rows_come_and_go_above_it(
    shared: TaskRoom, tmp_path: Path, told: list[str]
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        other = await doing(shared, tmp_path, "reviewer")
        shared.parts.changes.publish([Change("worker", 0)])
        await until(pilot, lambda: "@reviewer" in screen_text(pilot.app))
        chosen = f"agent/{other.uid}"
        for _ in range(5):
            if key(pilot.app) != chosen:
                await pilot.press("down")
        assert key(pilot.app) == chosen
        await coder.asks()
        await until(pilot, lambda: "needs you (1)" in screen_text(pilot.app))
        assert key(pilot.app) == chosen
        await pilot.press("enter")
        await until(pilot, lambda: told[-1] == "@reviewer")


async def test_a_click_opens_what_is_clicked(shared: TaskRoom, tmp_path: Path, told: list[str]):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        await until(pilot, lambda: "@coder" in screen_text(pilot.app))
        await pilot.click(offset=(5, row_of(pilot.app, "  @coder")))
        await until(pilot, lambda: told[-1] == "@coder")
        assert key(pilot.app) == f"agent/{coder.uid}"


async def test_a_click_hits_what_was_shown_when_the_button_went_down(
    shared: TaskRoom, tmp_path: Path, told: list[str]
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        await until(pilot, lambda: "@coder" in screen_text(pilot.app))
        row = row_of(pilot.app, "  @coder")
        await pilot.mouse_down(offset=(5, row))
        await coder.asks()
        await until(pilot, lambda: "needs you (1)" in screen_text(pilot.app))
        assert row_of(pilot.app, "  @coder") != row
        await pilot._post_mouse_events([events.MouseUp, events.Click], offset=(5, row), button=1)
        await until(pilot, lambda: told[-1] == "@coder")


async def test_posts_that_were_not_looked_at_are_counted_until_one_looks(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        await until(pilot, lambda: ">#" in screen_text(pilot.app))
        office = shared.parts.office
        await office.post(coder.uid, "other", "one")
        await office.post(coder.uid, "other", "two")
        await until(
            pilot,
            lambda: "(2)" in screen_text(pilot.app).splitlines()[row_of(pilot.app, "#other")],
        )
        await pilot.click(offset=(5, row_of(pilot.app, "#other")))
        await until(
            pilot,
            lambda: ">#other" in screen_text(pilot.app) and "(2)" not in screen_text(pilot.app),
        )


async def test_rows_that_stay_as_they_are_are_not_drawn_again(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        await doing(shared, tmp_path, "reviewer")
        shared.parts.changes.publish([Change("worker", 0)])
        await until(pilot, lambda: "@reviewer" in screen_text(pilot.app))
        drawn: list[int] = []
        draw = Sidebar.refresh_line
        monkeypatch.setattr(Sidebar, "refresh_line", lambda me, y: drawn.append(y) or draw(me, y))
        coder.hand.end()
        await until(pilot, lambda: "@coder failed" in screen_text(pilot.app) or drawn)
        sidebar = pilot.app.query_one(Sidebar)
        assert isinstance(pilot.app, PostroomApp)
        assert pilot.app.room is not None
        state, drawn[:] = pilot.app.room, []
        sidebar.on_snapshot(Snapshot(state))
        assert drawn == []


async def test_a_key_on_a_worker_acts_on_it_after_a_question(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        await until(pilot, lambda: "  @coder" in screen_text(pilot.app))
        await pilot.click(offset=(5, row_of(pilot.app, "  @coder")))
        await pilot.press("1", "s")
        await until(pilot, lambda: "stop @coder" in screen_text(pilot.app))


@pytest.mark.requirement("screen-state-fresh")
async def test_a_slash_in_the_list_filters_it_letter_by_letter_until_esc(
    shared: TaskRoom, tmp_path: Path, told: list[str]
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        for nick in ("c10", "c2"):
            await doing(shared, tmp_path, nick)
        shared.parts.changes.publish([Change("worker", 0)])
        await until(pilot, lambda: 0 < row_of(pilot.app, "@c2") < row_of(pilot.app, "@c10"))
        await pilot.press("slash", "c")
        await until(pilot, lambda: row_of(pilot.app, "/c · Esc: all") > 0)
        assert row_of(pilot.app, "@coder") > 0
        await pilot.press("1")
        await until(pilot, lambda: row_of(pilot.app, "@coder") < 0 < row_of(pilot.app, "@c10"))
        await pilot.press("enter")
        await until(pilot, lambda: pilot.app.query_one(Sidebar).has_focus)
        await pilot.press("enter")
        await until(pilot, lambda: told[-1] == "@c10")
        await pilot.press("escape", "escape")
        await until(pilot, lambda: row_of(pilot.app, "@coder") > 0)
        assert row_of(pilot.app, "Esc: all") < 0
        await pilot.press("slash", "c", "2", "escape")
        await until(pilot, lambda: row_of(pilot.app, "@coder") > 0)
        assert pilot.app.query_one(Sidebar).has_focus


@pytest.mark.requirement("screen-state-fresh")
async def test_a_command_that_was_typed_into_the_list_goes_to_the_line_where_one_types(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        await until(pilot, lambda: row_of(pilot.app, "@coder") > 0)
        await pilot.press("slash", *"nobody", "enter")
        await until(pilot, lambda: row_of(pilot.app, "nothing has that") > 0)
        await pilot.press(*["backspace"] * 6, *"spawn x", "enter")
        line = pilot.app.query_one(TypingLine)
        await until(pilot, lambda: line.has_focus and line.text == "/spawn x")
        assert row_of(pilot.app, "@coder") > 0
        line.load_text("")
        await pilot.press("escape", "2", "slash")
        await until(pilot, lambda: line.has_focus and line.text == "/")


@pytest.mark.requirement("screen-state-fresh")
async def test_space_folds_the_project_of_what_is_selected(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        await until(pilot, lambda: row_of(pilot.app, "  @coder") > 0)
        while key(pilot.app) != f"agent/{coder.uid}":
            await pilot.press("down")
        await pilot.press("space")
        await until(pilot, lambda: row_of(pilot.app, "▸ 1 worker") > 0)
        assert row_of(pilot.app, "@coder") < 0
        assert key(pilot.app).startswith("project/")
        await pilot.press("space")
        await until(pilot, lambda: row_of(pilot.app, "  @coder") > 0)
