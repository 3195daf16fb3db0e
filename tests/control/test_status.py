"""What the post room says about itself as a whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.control.taskroom import task_room

pytestmark = pytest.mark.anyio


async def test_status_says_that_the_bus_is_away_and_is_answered_all_the_same(tmp_path: Path):
    async with task_room(tmp_path) as room:
        before = (await room.api.get("/v1/status")).json()["bus"]
        await room.rig.stop(kill=True)
        async with asyncio.timeout(20):
            while room.mailroom.bus.statistics().connected:  # noqa: ASYNC110 (no event tells)
                await asyncio.sleep(0.01)

        away = (await room.api.get("/v1/status")).json()["bus"]
        await room.rig.start()

    assert (before, away) == ("", "the bus does not answer")
