"""Several rows at once: marked workers, and marked requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from postroom.tui.dialogs import Confirm
from postroom.tui.sidebar.pane import Sidebar
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import app_on, doing, screen_text, until, working

pytestmark = pytest.mark.anyio


def bar(pilot: Pilot[Any]) -> Sidebar:
    return pilot.app.screen_stack[0].query_one(Sidebar)


async def asked(pilot: Pilot[Any], title: str) -> str:
    """What the question shows."""
    await until(pilot, lambda: isinstance(pilot.app.screen, Confirm))
    await until(pilot, lambda: title in screen_text(pilot.app))
    dialog = pilot.app.screen
    assert isinstance(dialog, Confirm)
    dialog.guarded_until = 0.0
    return screen_text(pilot.app)


async def marked(pilot: Pilot[Any], begins: str, count: int) -> None:
    """Go through the list, and mark the first rows of a kind."""
    await pilot.press("1", "home")
    for _ in range(30):
        item = bar(pilot).selected
        if item is not None and item.key.startswith(begins):
            await pilot.press("m")
            count -= 1
        else:
            await pilot.press("down")
        if not count:
            return
    raise AssertionError(screen_text(pilot.app))


@pytest.mark.requirement("screen-state-fresh")
async def test_marked_workers_are_stopped_together_by_key_and_by_command(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        critic = await doing(shared, tmp_path, "critic")
        runs = [shared.parts.workers.run_of(each.uid) for each in (coder, critic)]
        await until(pilot, lambda: "@critic" in screen_text(pilot.app))
        await marked(pilot, "agent/", 2)
        await until(pilot, lambda: screen_text(pilot.app).count("•") == 2)
        await pilot.press("s")
        shown = await asked(pilot, "stop 2 workers?")
        assert "@coder" in shown
        assert "@critic" in shown
        await pilot.press("n")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Confirm))
        assert not any(run is None or run.stopping for run in runs)
        await pilot.press("i", "slash", *"stop", "enter")
        await asked(pilot, "stop 2 workers?")
        await pilot.press("y")
        await until(pilot, lambda: "stopped @" in screen_text(pilot.app))
        assert all(run is not None and run.stopping for run in runs)
        await until(pilot, lambda: "•" not in screen_text(pilot.app))


@pytest.mark.requirement("screen-state-fresh")
async def test_marked_requests_are_shown_whole_and_allowed_or_denied_together(
    shared: TaskRoom, tmp_path: Path
):
    ids = [f"{number}" * 16 for number in range(1, 5)]
    async with working(shared, tmp_path) as coder, app_on(coder, size=(80, 24)) as pilot:
        for request in ids:
            await coder.asks(request, input={"command": f"make part-{request[0]}"})
        await until(pilot, lambda: "needs you (4)" in screen_text(pilot.app))
        await marked(pilot, "approval/", 2)
        await until(pilot, lambda: "y allow marked" in screen_text(pilot.app))
        await pilot.press("y")
        shown = await asked(pilot, "allow 2 requests?")
        assert "make part-1" in shown
        assert "make part-2" in shown
        await pilot.press("y")
        states = [(await coder.decided(request))["state"] for request in ids[:2]]
        assert states == ["allowed", "allowed"]
        await until(pilot, lambda: "needs you (2)" in screen_text(pilot.app))
        await marked(pilot, "approval/", 1)
        await pilot.press("d")
        assert "make part-3" in await asked(pilot, "deny 1 request?")
        await pilot.press("y")
        assert (await coder.decided(ids[2]))["state"] == "denied"
        await coder.asks("5" * 16, input={"command": "\n".join(f"line {n}" for n in range(40))})
        await until(pilot, lambda: "needs you (2)" in screen_text(pilot.app))
        await marked(pilot, "approval/", 2)
        await pilot.press("y")
        await until(pilot, lambda: "nothing is decided unseen" in screen_text(pilot.app))
        assert (await coder.approval("5" * 16))["state"] == "pending"
