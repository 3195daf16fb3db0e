"""How the screen keeps up with the post room."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.tui.app import PostroomApp
from postroom.tui.room import NeedKind, Room
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import app_on, until, working

pytestmark = pytest.mark.anyio


def room_of(app: object) -> Room | None:
    assert isinstance(app, PostroomApp)
    return app.room


def kinds(app: object) -> list[NeedKind]:
    room = room_of(app)
    return [need.kind for need in room.needs] if room else []


async def test_what_an_agent_asks_is_in_the_next_state_of_the_screen(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path, "web") as coder, app_on(coder) as pilot:
        await until(pilot, lambda: room_of(pilot.app))
        assert kinds(pilot.app) == []
        await coder.asks()
        await until(pilot, lambda: kinds(pilot.app) == [NeedKind.APPROVAL])
        room = room_of(pilot.app)
        assert room is not None
        assert room.needs[0].who == "@coder"
        assert room.approval("ab12") is not None
