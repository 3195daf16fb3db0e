"""A feed goes on when the post room has been restarted."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from postroom.errors import PostroomError
from postroom.tui.news import Target
from tests import near
from tests.control.doing import announced
from tests.control.taskroom import TaskRoom, room_on
from tests.rig import running_server
from tests.tui.conftest import app_on, until
from tests.tui.talk.said import Looking

pytestmark = pytest.mark.anyio

WEB = Target("web")


async def post(room: TaskRoom, text: str) -> None:
    answer = await room.api.post("/v1/projects/web/posts", json={"text": text})
    assert answer.status_code == 201, answer.text


@pytest.mark.requirement("screen-said-once")
async def test_a_feed_goes_on_by_itself_after_a_restart_and_nothing_is_lost_or_doubled(
    tmp_path: Path,
):
    state = tmp_path / "state"
    state.mkdir()
    async with running_server(tmp_path) as rig, AsyncExitStack() as screens:
        async with room_on(tmp_path, rig) as room:
            await post(room, "before")
            pilot = await screens.enter_async_context(app_on(announced(room, state), start=WEB))
            screen = Looking(pilot)
            await screen.shows("] before")
            await until(pilot, lambda: screen.talk.ready)
        (state / "server.json").unlink()
        near.withdraw(state)
        await screen.shows("the post room is away")
        with pytest.raises(PostroomError, match="nothing was sent"):
            await screen.talk.send("into the void")
        assert not any("void" in row for row in screen.rows)
        async with room_on(tmp_path, rig) as room:
            await post(room, "while nobody reads")
            announced(room, state)
            await screen.hides("the post room is away")
            await screen.shows("] while nobody reads")
            await screen.talk.send("into the void")
            await post(room, "after")
            await screen.shows("] after")
            said = [row.partition("] ")[2] for row in screen.rows if "] " in row]
            assert said == ["before", "while nobody reads", "into the void", "after"]
            await screens.aclose()
