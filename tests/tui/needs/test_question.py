"""The dialog about a question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from postroom.protocol.priority import Input
from postroom.tui.needs.bar import NeedsBar
from postroom.tui.needs.dialog import Phase
from postroom.tui.needs.question import QuestionDialog
from postroom.tui.rowlists import RowsView
from postroom_a2a.messages import text_of
from postroom_a2a.task_state import TaskState
from tests.control.doing import REQUEST
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import app_on, screen_text, until, working
from tests.tui.needs.test_approval import closed, shows

pytestmark = pytest.mark.anyio

ASKS: dict[str, Any] = {
    "kind": "question",
    "tool": "AskUserQuestion",
    "title": "Which database?",
    "input": {
        "questions": [
            {
                "question": "Which database?",
                "options": [
                    {"label": "SQLite", "description": "one file"},
                    {"label": "PostgreSQL\u202e", "description": "a server"},
                ],
            }
        ]
    },
}


async def question_of(pilot: Pilot[Any], id_: str) -> None:
    """Open the question, once the screen knows of it; its keys count on return."""
    app = pilot.app
    bar = app.query_one(NeedsBar)
    await until(pilot, lambda: bar.queue.find(id_))
    bar.show_need(id_)
    await until(
        pilot, lambda: isinstance(app.screen, QuestionDialog) and app.screen.phase is Phase.ASK
    )


@pytest.mark.parametrize(
    "size", [(40, 20), pytest.param((80, 24), marks=pytest.mark.slow)], ids=str
)
async def test_a_task_s_question_is_shown_first_and_answered_with_lines_of_text(
    shared: TaskRoom, tmp_path: Path, size: tuple[int, int]
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=size) as pilot:
        task = (await coder.room.delegate(coder.uid, "write the parser"))["id"]
        await coder.hand.listen()
        await coder.hand.take(task)
        await coder.hand.say(task, TaskState.WORKING, "I have read the grammar")
        await coder.hand.say(task, TaskState.INPUT_REQUIRED, "Which branch?\n- main\n- next")
        await question_of(pilot, task)
        await until(pilot, lambda: "write the parser" in pilot.app.screen.query_one(RowsView).text)
        await until(
            pilot,
            lambda: shows(pilot, "@coder asks", "Which branch?", "1 main", "2 next", "enter send"),
        )
        assert "read the grammar" in pilot.app.screen.query_one(RowsView).text
        assert all(len(line) <= size[0] for line in screen_text(pilot.app).splitlines())
        await pilot.press(*"none", "ctrl+j", *"of it", "enter")
        await closed(pilot)
        await until(pilot, lambda: shows(pilot, "answered"))
        _, told = await coder.hand.next()
        assert isinstance(told, Input)
        assert text_of(told.message) == "none\nof it"


async def test_a_question_in_a_turn_is_answered_with_a_choice(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        await coder.asks(**ASKS)
        await question_of(pilot, REQUEST)
        await until(
            pilot,
            lambda: shows(
                pilot, "Which database?", "1 SQLite", "one file", "2 PostgreSQL\\u{202e}"
            ),
        )
        await pilot.press("2")  # marks it: a digit may begin a text
        await pilot.pause()
        assert (await coder.approval())["state"] == "pending"
        await pilot.press("enter")
        answer = (await coder.decided())["answer"]
        assert (answer["decision"], answer["channel"]) == ("edited", "screen")
        assert answer["input"] == {"text": "PostgreSQL\u202e"}


async def test_a_question_that_was_answered_elsewhere_says_the_answer_and_goes(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        task = (await coder.room.delegate(coder.uid, "write the parser"))["id"]
        await coder.hand.take(task)
        await coder.hand.say(task, TaskState.WORKING)
        await coder.hand.say(task, TaskState.INPUT_REQUIRED, "Which branch?")
        await question_of(pilot, task)
        await coder.hand.listen()
        await coder.room.post(f"/{task}/answer", text="main, \x1b[31mof course")
        _, told = await coder.hand.next()
        assert isinstance(told, Input)
        await coder.hand.answered(task, told.message)
        await until(pilot, lambda: shows(pilot, "it was answered: “main, of course”"))
        await closed(pilot)


async def test_a_task_that_asks_something_else_meanwhile_gets_no_answer_meant_for_the_first(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        task = (await coder.room.delegate(coder.uid, "write the parser"))["id"]
        await coder.hand.take(task)
        await coder.hand.say(task, TaskState.WORKING)
        await coder.hand.say(task, TaskState.INPUT_REQUIRED, "Delete the branch?")
        await question_of(pilot, task)
        monkeypatch.setattr(NeedsBar, "on_snapshot", lambda *_: None)
        await pilot.press(*"no")
        await coder.hand.say(task, TaskState.INPUT_REQUIRED, "Keep the branch?")
        await pilot.press("enter")
        await until(pilot, lambda: shows(pilot, "Keep the branch?", "asks something else now"))
        assert (await coder.room.get(f"/{task}"))["state"] == "input-required"
        await coder.hand.say(task, TaskState.COMPLETED, "kept")
        await pilot.press("enter")
        await until(pilot, lambda: shows(pilot, "too late", "the task is completed"))
