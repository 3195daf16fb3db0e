"""The dialog about an approval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from postroom.tui.needs.approval import ApprovalDialog
from postroom.tui.needs.dialog import Phase
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import app_on, screen_text, until, working

pytestmark = pytest.mark.anyio

SIZES = [(40, 20), (80, 24), (160, 50)]


async def dialog_of(pilot: Pilot[Any]) -> ApprovalDialog:
    """The dialog, once its keys count."""
    app = pilot.app

    def ready() -> bool:
        found = app.screen
        return isinstance(found, ApprovalDialog) and found.phase is Phase.ASK and not found.guarded

    await until(pilot, ready)
    assert isinstance(app.screen, ApprovalDialog)
    return app.screen


def shows(pilot: Pilot[Any], *texts: str) -> bool:
    shown = " ".join(screen_text(pilot.app).split())
    return all(text in shown for text in texts)


@pytest.mark.parametrize("size", SIZES, ids=str)
async def test_a_dialog_opens_by_itself_and_shows_exactly_what_is_to_be_allowed(
    shared: TaskRoom, tmp_path: Path, size: tuple[int, int]
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=size, opens=True) as pilot:
        await coder.asks(reason="the target is new")
        await dialog_of(pilot)
        shown = screen_text(pilot.app)
        assert "@coder asks to use Bash" in shown
        assert "\\u{202e}prod" in "".join(shown.split())
        assert "\u202e" not in shown
        assert shows(pilot, "y allow", "d deny", "e edit", "esc later", "1 of 1")
        lines = shown.splitlines()
        assert len(lines) <= size[1]
        assert all(len(line) <= size[0] for line in lines)
        await pilot.press("y")
        assert (await coder.decided())["answer"]["channel"] == "screen"
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)
