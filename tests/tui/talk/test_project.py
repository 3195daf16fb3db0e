"""The feed of a project, and what happens beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postroom.errors import Forbidden
from postroom.tui.news import Target
from postroom.tui.talk.view import View
from postroom_a2a.task_state import TaskState
from tests.control.doing import REQUEST
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import screen_text, until
from tests.tui.talk.said import looking

pytestmark = pytest.mark.anyio

WEB = Target("web")


async def test_posts_and_what_happens_beside_them_come_once_and_in_order(
    shared: TaskRoom, tmp_path: Path
):
    async with looking(shared, tmp_path, "green") as (coder, screen):
        await coder.post("green", "before")
        await screen.look(Target("green"))
        await screen.shows("· @coder was added", "[maria] before")
        await screen.talk.send("after")
        task = (await coder.room.delegate("@coder", "fix it"))["id"]
        hand = coder.doing.hand
        await hand.take(task)
        await hand.say(task, TaskState.WORKING)
        await hand.say(task, TaskState.INPUT_REQUIRED, "which branch?")
        text = await screen.shows("takes task", "asks about task", "Enter answers it")
        assert "sending" not in text
        assert [row.partition(" ")[2] for row in screen.rows if "maria] " in row] == [
            "[maria] before",
            "[maria] after",
        ]


async def test_enter_on_what_asks_opens_its_dialog(shared: TaskRoom, tmp_path: Path):
    async with looking(shared, tmp_path, "web", size=(160, 50)) as (coder, screen):
        await screen.look(WEB)
        await coder.doing.asks()
        await screen.shows("asks for approval", "Enter answers it", "! @coder Bash")
        await screen.pilot.press("up", "enter")
        await until(screen.pilot, lambda: len(screen.app.screen_stack) > 1)
        assert REQUEST[:4] in screen.text or "make deploy" in screen.text

        await coder.doing.decide("allowed")
        await until(
            screen.pilot, lambda: "waits no more" in screen.text or "allowed" in screen.text
        )
        await screen.pilot.press("escape")
        await until(screen.pilot, lambda: "asks for approval" in screen.text)
        await until(screen.pilot, lambda: "Enter answers it" not in screen.text)


@pytest.mark.slow
async def test_who_does_not_operate_sees_the_posts_alone(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with looking(shared, tmp_path, "blue") as (coder, screen):

        def refused(*_: Any, **__: Any) -> Any:
            raise Forbidden("it needs the scope operate")

        monkeypatch.setattr(screen.app.client, "project_events", refused)
        for number in range(105):
            await coder.post("blue", f"post {number}.")
        await screen.look(Target("blue"))
        await screen.shows("post 104.")
        await coder.post("blue", "live")
        await screen.shows("[maria] live")
        for _ in range(4):
            await screen.pilot.press("home")
            await screen.pilot.pause()
        await screen.has("post 0.")
        assert "was added" not in "\n".join(screen.rows)


async def test_a_lost_receipt_is_read_again_when_the_link_is_back(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    taken, deaf = View._take, []

    def take(view: View, events: Any) -> None:
        taken(view, [event for event in events if not deaf or event.kind != "receipt"])

    monkeypatch.setattr(View, "_take", take)
    async with looking(shared, tmp_path) as (coder, screen):
        await screen.look(coder.target)
        await screen.talk.send("hello")
        await screen.shows("hello · accepted")
        deaf.append(True)
        from postroom.protocol.receipts import State

        await coder.receipt((await coder.mails())[0]["id"], State.SEEN)
        await coder.write("written later")
        await screen.shows("written later")
        assert "hello · accepted" in screen.text
        view = screen.talk._shown
        assert view is not None
        view._went(True)
        await screen.shows("the post room is away")
        view._went(False)
        await screen.shows("hello · seen")
        assert "is away" not in screen.text


@pytest.mark.parametrize("size", [(40, 20), (160, 50)], ids=str)
async def test_it_is_readable_at_any_size(shared: TaskRoom, tmp_path: Path, size: tuple[int, int]):
    async with looking(shared, tmp_path, "web", size=size) as (coder, screen):
        await coder.write("a long line of words " * 20, expects_reply=True)
        await screen.look(coder.target)
        await screen.shows("[coder] a long line", "your next line answers")
        lines = screen_text(screen.app).splitlines()
        assert len(lines) <= size[1]
        assert all(len(line) <= size[0] for line in lines)
