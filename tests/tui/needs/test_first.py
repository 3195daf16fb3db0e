"""What stands first is what a key opens, wherever it is listed."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.cli.status_lines import status_lines
from postroom.tui.needs.bar import NeedsBar
from postroom.tui.needs.dialog import NeedDialog, Phase
from postroom.tui.rowlists import RowsView
from postroom.tui.sidebar.pane import Sidebar
from postroom.view import needs as needs_module
from postroom.view.needs import SOON, expiry, since, until_another, waiting
from postroom_a2a.task_state import TaskState
from postroom_a2a.times import format_time
from tests.control.doing import REQUEST
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import app_on, screen_text, until, working
from tests.tui.needs.test_approval import OTHER, app_of, closed, shows

NOW = 1_000_000.0


@st.composite
def asked(draw: st.DrawFn) -> tuple[list[Any], list[Any]]:
    times = st.integers(0, int(NOW))
    ends = st.one_of(st.none(), st.integers(0, 240).map(lambda left: format_time(NOW + left)))
    approvals: list[Any] = [
        {
            "id": f"a{n}",
            "kind": draw(st.sampled_from(("tool", "question"))),
            "tool": "Bash",
            "task": draw(st.sampled_from((None, "b0", "b9"))),
            "asked_at": format_time(draw(times)),
            "expires_at": draw(ends),
        }
        for n in range(draw(st.integers(0, 6)))
    ]
    questions: list[Any] = [
        {"id": f"b{n}", "updated_at": format_time(draw(times))}
        for n in range(draw(st.integers(0, 4)))
    ]
    return approvals, questions


@pytest.mark.requirement("approval-never-hangs")
@given(asked())
def test_what_expires_soon_is_first_then_the_oldest_and_a_task_s_question_stands_once(
    given_needs: tuple[list[Any], list[Any]],
):
    approvals, questions = given_needs
    found = waiting(approvals, questions, NOW)
    tasks = {task["id"] for task in questions}
    twice = {a["id"] for a in approvals if a["kind"] == "question" and a["task"] in tasks}
    every = {a["id"] for a in approvals} | tasks
    assert {one["id"] for one in found} == every - twice
    ends = [expiry(one) for one in found]
    soon = [end is not None and end - NOW <= SOON for end in ends]
    assert soon == sorted(soon, reverse=True)
    first = [end for end, is_soon in zip(ends, soon, strict=True) if is_soon and end is not None]
    assert first == sorted(first)
    ages = [since(one) for one, is_soon in zip(found, soon, strict=True) if not is_soon]
    assert ages == sorted(ages)
    left = until_another(approvals, NOW)
    if left is not None:
        assert left > 0
        later = [expiry(a) for a in approvals if a["expires_at"]]
        assert any(end is not None and end - (NOW + left) == SOON for end in later)


def needed_first(status: Any) -> str:
    """The line of what stands first in `postroom status`."""
    lines = status_lines(status, time.time(), width=None)
    return lines[lines.index(next(line for line in lines if "needs you:" in line)) + 1]


async def opened_by_n(pilot: Any) -> str:
    """The id of what `n` opens."""
    await pilot.press("n")
    app = pilot.app
    await until(pilot, lambda: isinstance(app.screen, NeedDialog) and app.screen.phase is Phase.ASK)
    found = app.screen.need.id
    await pilot.press("escape")
    await closed(pilot)
    return found


@pytest.mark.anyio
@pytest.mark.requirement("approval-never-hangs")
async def test_what_n_opens_stands_first_on_the_left_in_the_bar_in_the_status_and_among_approvals(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        app, bar = app_of(pilot), pilot.app.query_one(NeedsBar)
        task = (await coder.room.delegate(coder.uid, "write the parser"))["id"]
        await coder.hand.listen()
        await coder.hand.take(task)
        await coder.hand.say(task, TaskState.WORKING, "I read")
        await coder.hand.say(task, TaskState.INPUT_REQUIRED, "Which branch?")
        await coder.asks()
        await coder.asks(OTHER, expires_at=format_time(time.time() + 3600))
        await until(pilot, lambda: len(bar.queue) == 3)
        first = next(item for item in app.query_one(Sidebar)._items if item.need is not None)
        assert first.need is not None
        assert first.need.id == task
        assert "ctrl-n: 3 wait · @coder asks: Which branch?" in screen_text(app)
        assert await opened_by_n(pilot) == task
        status = (await coder.room.api.get("/v1/status")).json()
        assert "Which branch?" in needed_first(status)
        # An hour passes: time alone puts what expires before what is older.
        monkeypatch.setattr(needs_module, "SOON", 7200.0)
        link = app.link
        assert link is not None
        link.refresh()
        await until(pilot, lambda: bar.queue.order[0].id == OTHER)
        assert app.room is not None
        assert app.room.needs[0].id == OTHER
        assert await opened_by_n(pilot) == OTHER
        assert needed_first(status).startswith(f"  {OTHER[:8]}")


@pytest.mark.anyio
async def test_time_alone_puts_another_first_without_any_news(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(needs_module, "SOON", 3598.0)
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        bar = pilot.app.query_one(NeedsBar)
        await coder.asks()
        await coder.asks(OTHER, expires_at=format_time(time.time() + 3600))
        await until(pilot, lambda: [need.id for need in bar.queue.order] == [REQUEST, OTHER])
        await until(pilot, lambda: [need.id for need in bar.queue.order] == [OTHER, REQUEST])


@pytest.mark.anyio
async def test_what_waited_before_the_person_came_opens_no_dialog_by_itself(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        await coder.asks()
        async with app_on(coder, opens=True) as pilot:
            bar = pilot.app.query_one(NeedsBar)
            await until(pilot, lambda: len(bar.queue) == 1)
            await pilot.pause(0.1)
            assert len(pilot.app.screen_stack) == 1
            await coder.asks(OTHER)
            await until(pilot, lambda: isinstance(pilot.app.screen, NeedDialog))
            assert pilot.app.screen.need.id == OTHER  # ty: ignore[missing-attribute]


@pytest.mark.anyio
async def test_n_goes_to_what_no_dialog_answers_where_nothing_else_waits(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with working(shared, tmp_path) as coder, app_on(coder) as pilot:
        app = app_of(pilot)
        await until(pilot, lambda: app.room)
        room = app.room
        assert room is not None
        # Of this state alone, whatever else the room knows.
        monkeypatch.setattr(type(app), "on_snapshot", lambda *_: None)
        calm: Any = room.status | {"workers": [], "alerts": [], "inbox": 0, "deadletters": 0}
        app.room = replace(room, status=calm, unread=())
        await pilot.press("n")
        await until(pilot, lambda: shows(pilot, "nothing waits for you"))
        app.room = replace(room, status=calm | {"deadletters": 2}, unread=())
        await pilot.press("n")
        await until(pilot, lambda: shows(pilot, "2 dead letters: postroom deadletters list"))


@pytest.mark.anyio
@pytest.mark.requirement("approval-shown-decided")
async def test_a_dialog_says_the_command_first_each_thing_once_and_folds_the_task(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(120, 40)) as pilot:
        text = "Mend the deploy.\n" + "\n".join(f"Step {n} of it." for n in range(1, 60))
        task = (await coder.room.delegate(coder.uid, text))["id"]
        await coder.hand.listen()
        await coder.hand.take(task)
        given = {"command": "make deploy", "description": "deploy it"}
        await coder.asks(task=task, title="make deploy", reason="deploy it", input=given)
        bar = pilot.app.query_one(NeedsBar)
        await until(pilot, lambda: len(bar.queue) == 1)
        await pilot.press("n")
        await until(pilot, lambda: shows(pilot, "y allow"))
        rows = pilot.app.screen.query_one(RowsView)
        assert rows.text.splitlines() == [
            "  $ make deploy",
            "  description: deploy it",
            f"  for task {task[:8]} of @maria: {' '.join(text.split())}",
        ]
        lines = screen_text(pilot.app).splitlines()
        top = next(n for n, line in enumerate(lines) if "1 of 1 · @coder asks to use Bash" in line)
        assert "$ make deploy" in lines[top + 1]
        assert not shows(pilot, "Step 59")
        await pilot.press("t")
        await until(pilot, lambda: "Step 59 of it." in rows.text.splitlines()[-1])
        await pilot.press("t")
        await until(pilot, lambda: len(rows.text.splitlines()) == 3)
