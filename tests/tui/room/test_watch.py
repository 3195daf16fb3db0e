"""The page of `postroom watch`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from postroom.client.http import AsyncClient
from postroom.tui.watch import WatchApp
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import screen_text, until, working

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def page(state: Path, size: tuple[int, int]) -> AsyncGenerator[Pilot[int]]:
    async with WatchApp(AsyncClient.at(state)).run_test(size=size) as pilot:
        yield pilot


@pytest.mark.parametrize("size", [(40, 10), (160, 50)], ids=str)
async def test_the_page_shows_who_needs_you_the_workers_and_what_happens(
    shared: TaskRoom, tmp_path: Path, size: tuple[int, int]
):
    async with working(shared, tmp_path) as coder, page(tmp_path, size) as pilot:
        await until(pilot, lambda: "nothing needs you" in screen_text(pilot.app))
        await coder.asks()
        await until(pilot, lambda: "1 needs you" in screen_text(pilot.app))
        await until(pilot, lambda: "make deploy" in screen_text(pilot.app))
        await coder.decide("denied")
        await until(pilot, lambda: "nothing needs you" in screen_text(pilot.app))
        await shared.parts.office.post(coder.uid, "main", "tests pass")
        await until(pilot, lambda: "tests pass" in screen_text(pilot.app))
        shown = screen_text(pilot.app)
        assert "@coder" in shown
        assert all(len(line) <= size[0] for line in shown.splitlines())
        await pilot.press("q")
        await until(pilot, lambda: not pilot.app.is_running)
