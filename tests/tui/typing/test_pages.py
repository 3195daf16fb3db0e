"""The help, the palette, and the frame around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.binding import Binding
from textual.command import CommandList
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input

from postroom.errors import NotFound
from postroom.tui.app import PostroomApp
from postroom.tui.needs.approval import ApprovalDialog
from postroom.tui.needs.dialog import NeedDialog
from postroom.tui.news import Said, Target
from postroom.tui.rowlog.byrow import ByRow
from postroom.tui.rowlog.log import RowLog
from postroom.tui.sidebar.pane import Sidebar
from postroom.tui.talk.pane import Talk
from postroom.tui.typing.commands import VERBS
from postroom.tui.typing.help import PLACES, Page
from postroom.tui.typing.line import SaidLine, TypingLine
from postroom.tui.worker.diff import Diff
from postroom.tui.worker.pane import WorkerPane
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import app_on, doing, screen_text, until, working

pytestmark = pytest.mark.anyio


def app_of(pilot: Pilot[int]) -> PostroomApp:
    assert isinstance(pilot.app, PostroomApp)
    return pilot.app


@pytest.mark.parametrize("size", [(40, 20), (160, 50)], ids=str)
async def test_the_help_has_every_command_and_scrolls_at_any_size(
    shared: TaskRoom, tmp_path: Path, size: tuple[int, int]
) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder, size=size) as pilot:
        await until(pilot, lambda: app_of(pilot).room)
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(pilot.app.screen, Page))
        seen = ""
        for _ in range(40):
            await pilot.press("pagedown")
            await pilot.pause()
            seen += screen_text(pilot.app)
            if "/quit" in seen:
                break
        assert not [verb.name for verb in VERBS[-6:] if f"/{verb.name}" not in seen]
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Page))


PLACED: dict[str, tuple[type[Any], ...]] = {
    "Everywhere": (PostroomApp, App, Screen),
    "Rooms": (Sidebar,),
    "Talk": (Talk,),
    "Talk and worker": (RowLog,),
    "Worker": (WorkerPane,),
    "What it changed": (Diff, ByRow),
    "What needs you": (ApprovalDialog, NeedDialog),
    "The line": (TypingLine,),
}
"""Whose keys a part of the help page has; those behind the first two of a part need not all be there."""

WRITTEN = {
    "question_mark": "?",
    "slash": "/",
    "comma": ",",
    "full_stop": ".",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
    "enter": "Enter",
    "home": "Home",
    "end": "End",
    "tab": "Tab",
}


def bound(kind: type[Any]) -> list[set[str]]:
    """The keys of each binding that a class itself has, as the help page writes them."""
    found = [each for each in vars(kind).get("BINDINGS", []) if isinstance(each, Binding)]
    keys = [each.key.split(",") for each in found]
    return [{WRITTEN.get(key, key).replace("ctrl+", "ctrl-") for key in each} for each in keys]


async def test_the_help_has_every_key_and_no_other():
    shown = {place: {key for keys, _ in rows for key in keys.split()} for place, rows in PLACES}
    assert shown.keys() == PLACED.keys()
    for place, kinds in PLACED.items():
        own = [keys for kind in kinds if kind not in (App, Screen) for keys in bound(kind)]
        missing = [keys for keys in own if not keys & shown[place] and "shift+tab" not in keys]
        assert not missing, place
        able = set().union(*(keys for kind in kinds for keys in bound(kind)))
        # Textual itself has the palette and Tab; // is text.
        assert shown[place] <= able | {"//", "ctrl-p", "Tab"}, place


def offers(pilot: Pilot[int], text: str) -> bool:
    """Whether Enter in the palette takes that; behind it the panes show nicks, too."""
    found = pilot.app.screen.query_one(CommandList)
    return found.highlighted is not None and text in str(
        found.get_option_at_index(found.highlighted).prompt
    )


async def test_the_palette_finds_commands_and_whom_to_look_at(
    shared: TaskRoom, tmp_path: Path
) -> None:
    async with working(shared, tmp_path) as coder:
        # What waits since earlier tests names their workers, so a search for one of them finds that too.
        painter = await doing(shared, tmp_path, "violet")
        async with app_on(coder) as pilot:
            await until(pilot, lambda: app_of(pilot).room)
            await pilot.press("ctrl+p")
            await until(pilot, lambda: pilot.app.screen.query(Input))
            await pilot.press(*"violet")
            await until(pilot, lambda: offers(pilot, "@violet"))
            await pilot.press("enter")
            await until(pilot, lambda: app_of(pilot).target == Target("violet", painter.uid))

            await pilot.press("ctrl+p")
            await until(pilot, lambda: pilot.app.screen.query(Input))
            await pilot.press(*"/deleg")
            await until(pilot, lambda: offers(pilot, "Give an agent a task"))
            await pilot.press("enter")
            line = pilot.app.screen_stack[0].query_one(TypingLine)
            await until(pilot, lambda: line.text == "/delegate " and line.has_focus)


async def test_what_was_said_can_be_seen_again(shared: TaskRoom, tmp_path: Path) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        pilot.app.post_message(Said("first \x1b[31mthing"))
        pilot.app.post_message(Said("[bold]second[/] thing", bad=True))
        await until(pilot, lambda: "[bold]second[/] thing" in screen_text(pilot.app))
        pilot.app.query_one(SaidLine).hush()
        await until(pilot, lambda: "second" not in screen_text(pilot.app))

        await pilot.press("ctrl+l")
        await until(pilot, lambda: "first thing" in screen_text(pilot.app))
        assert "[bold]second[/] thing" in screen_text(pilot.app)


async def test_ctrl_c_ends_nothing_and_says_how_to_leave(shared: TaskRoom, tmp_path: Path) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await until(pilot, lambda: app_of(pilot).room)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "to leave press q" in screen_text(pilot.app))
        await pilot.press("i", "x", "ctrl+c")
        await until(pilot, lambda: "to leave press ctrl-q" in screen_text(pilot.app))
        assert pilot.app.is_running


async def test_too_small_a_terminal_says_so_in_one_line_and_recovers(
    shared: TaskRoom, tmp_path: Path
) -> None:
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await pilot.press("i", *"text")
        await pilot.resize_terminal(25, 6)
        await until(pilot, lambda: screen_text(pilot.app).strip() == "postroom needs 30x8")
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "text" in screen_text(pilot.app))


async def test_a_refusal_in_a_part_is_said_and_the_screen_goes_on(
    shared: TaskRoom, tmp_path: Path
) -> None:
    async def refused() -> None:
        raise NotFound("no such thing", remedy="look elsewhere")

    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        pilot.app.run_worker(refused)
        await until(pilot, lambda: "try: look elsewhere" in screen_text(pilot.app))
        assert "no such thing" in screen_text(pilot.app)
        assert app_of(pilot).failure is None


@pytest.mark.parametrize(
    "size, shown",
    [((40, 20), [1, 1, 1]), ((80, 24), [2, 2, 2]), ((160, 50), [3, 3, 3])],
    ids=str,
)
async def test_the_keys_1_2_3_show_and_focus_a_pane_at_any_width(
    shared: TaskRoom, tmp_path: Path, size: tuple[int, int], shown: list[int]
) -> None:
    async with (
        working(shared, tmp_path) as coder,
        app_on(coder, size=size, start=Target("coder", coder.uid)) as pilot,
    ):
        await until(pilot, lambda: app_of(pilot).target)
        panes = [pilot.app.query_one(f"#{name}") for name in ("sidebar", "talk", "worker")]
        for place, count in enumerate(shown):
            await pilot.press(str(place + 1))
            await pilot.pause()
            visible = [pane.id for pane in panes if pane.display]
            assert len(visible) == count
            assert panes[place].display
            focused = pilot.app.focused
            assert focused is None or panes[place] in focused.ancestors_with_self
        await pilot.press("escape")
        await pilot.pause()
        assert panes[0].display
