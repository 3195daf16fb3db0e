"""Tasks in a conversation, with what came of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom_a2a.task_state import TaskState
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import until
from tests.tui.talk.said import looking

pytestmark = pytest.mark.anyio

LONG = "# Findings\n" + "\n".join(f"- finding **{n}**" for n in range(30))


@pytest.mark.requirement("screen-said-once")
async def test_a_conversation_shows_a_task_with_its_answer_below_and_folds_a_long_one(
    shared: TaskRoom, tmp_path: Path
):
    async with looking(shared, tmp_path, size=(118, 40)) as (coder, screen):
        hand = coder.doing.hand
        before = (await shared.delegate(coder.doing.uid, "count: one two three"))["id"]
        await hand.take(before)
        await hand.say(before, TaskState.WORKING)
        await hand.make(before, "\x1b[31mthree\x1b[0m words, see [it](https://x.example/a)")
        await hand.say(before, TaskState.COMPLETED)
        await screen.look(coder.target)
        text = await screen.shows(f"task {before[:8]} completed", "three words")
        assert "three words, see it (https://x.example/a)" in text
        asked, answered = text.index("count: one two three"), text.index("three words")
        # What comes while one looks stands below its own request, too.
        after = (await shared.delegate(coder.doing.uid, "review it"))["id"]
        await screen.shows("review it", f"task {after[:8]}")
        await hand.take(after)
        await hand.say(after, TaskState.WORKING)
        await hand.make(after, LONG)
        await hand.say(after, TaskState.COMPLETED)
        text = await screen.shows(f"task {after[:8]} completed", "Findings", "more")
        assert asked < answered < text.index("review it") < text.index("Findings")
        assert "finding 7" not in text
        log = screen.talk.log_of
        assert log is not None
        assert log.go_to(f"task {after}")
        screen.app.look("talk")
        await screen.pilot.press("space")
        await screen.shows("• finding 20")
        await screen.pilot.press("enter")
        await until(screen.pilot, lambda: len(screen.app.screen_stack) == 2)


@pytest.mark.requirement("screen-said-once")
async def test_a_task_that_failed_says_why_where_it_was_asked_for(shared: TaskRoom, tmp_path: Path):
    async with looking(shared, tmp_path, size=(118, 30)) as (coder, screen):
        await screen.look(coder.target)
        task = (await shared.delegate(coder.doing.uid, "ship it"))["id"]
        await coder.doing.hand.take(task)
        await coder.doing.hand.say(task, TaskState.WORKING)
        await coder.doing.hand.say(task, TaskState.FAILED, "the tests are red")
        text = await screen.shows(f"task {task[:8]} failed", "the tests are red")
        assert text.index("ship it") < text.index("the tests are red")
