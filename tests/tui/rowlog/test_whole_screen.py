"""The whole screen is fed with hostile text wherever an agent's text stands, and what it writes is looked at."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from postroom.client.http import AsyncClient
from postroom.tui.app import PostroomApp
from postroom.tui.news import Chosen, Target
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import screen_text, until, working
from tests.tui.rowlog.terminal import Recorded, left_over
from tests.tui.rowlog.test_hostile import SEQUENCES

pytestmark = pytest.mark.anyio

HOSTILE = " ".join(f"<{name}> {text}" for name, text in SEQUENCES.items() if name != "open ended")
HOSTILE = re.sub("[\x00\ud800-\udfff]", "", HOSTILE)  # no message has these


@pytest.mark.slow
@pytest.mark.requirement("text-controls-stripped")
async def test_no_part_of_the_screen_lets_an_agents_text_act(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder:
        task = await coder.room.delegate(coder.uid, HOSTILE)
        await coder.hand.take(task["id"])
        await coder.report(
            {"type": "text", "text": HOSTILE},
            {"type": "thinking", "text": HOSTILE},
            {
                "type": "tool_call",
                "call": "c",
                "tool": HOSTILE[:200],
                "title": HOSTILE,
                "input": {"command": HOSTILE},
            },
            {"type": "tool_result", "call": "c", "status": "error", "output": HOSTILE},
        )
        await coder.asks(
            title=HOSTILE, reason=HOSTILE, input={"command": HOSTILE, "x\x1b[2J": HOSTILE}
        )
        app = PostroomApp(AsyncClient.at(coder.state, ""), start=Target("coder", coder.uid))
        app.driver_class = Recorded
        async with app.run_test(headless=False, size=(160, 50)) as pilot:
            driver = app._driver
            assert isinstance(driver, Recorded)
            await until(pilot, lambda: "@coder" in screen_text(app))
            for key in ("3", "2", "1"):
                await pilot.press(key)
                await pilot.pause()
            await until(pilot, lambda: app.room is not None and app.room.needs)
            app.post_message(Chosen(Target("coder", coder.uid)))
            await pilot.press("3")
            await until(pilot, lambda: "<CSI>" in screen_text(app))
            await pilot.press("ctrl+n")
            await until(pilot, lambda: r"<CSI> \x1b[2J" in screen_text(app))
            for key in ("pagedown", "end", "escape", "question_mark", "escape"):
                await pilot.press(key)
                await pilot.pause()
            seen = screen_text(app)
            written = driver.written
    assert "<CSI>" in written
    written = re.sub(r"\x1b\[\?\d+[hl]|\x1b\]22;\w+\x07|\x1b\[[<>=?]\d*u", "", written)
    assert not left_over(written), (left_over(written), seen)
