"""What is pasted does nothing to the terminal, wherever it goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual import events
from textual.widgets import Input, TextArea

from tests.control.taskroom import TaskRoom
from tests.tui.needs.test_approval import opened, state_of

pytestmark = pytest.mark.anyio

HOSTILE = "a\x1b]0;evil\x07b\x9b1m\x00c"


async def test_a_pasted_text_has_no_control_characters_in_the_lines_of_a_dialog(
    shared: TaskRoom, tmp_path: Path
):
    async with opened(shared, tmp_path) as (coder, pilot):
        await pilot.press("d")
        pilot.app.post_message(events.Paste(HOSTILE))
        await pilot.pause()
        assert pilot.app.screen.query_one("#reason", Input).value == "a]0;evilb1mc"
        await pilot.press("escape", "e")
        area = pilot.app.screen.query_one(TextArea)
        area.load_text("")
        pilot.app.post_message(events.Paste(f"{HOSTILE}\r\nnext"))
        await pilot.pause()
        assert area.text == "a]0;evilb1mc\nnext"
        assert await state_of(coder) == "pending"
