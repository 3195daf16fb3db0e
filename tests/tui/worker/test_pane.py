"""What the right pane shows of a worker, over the wire."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.pilot import Pilot

from postroom.tui.news import Chosen, Target
from postroom.tui.worker.pane import WorkerPane
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import TaskRoom
from tests.tui.conftest import Doing, app_on, doing, screen_text, until, working

pytestmark = pytest.mark.anyio

WIDE = (160, 40)


def of(worker: Doing) -> Target:
    return Target(worker.hand.agent.nick, worker.uid)


def choose(pilot: Pilot[int], worker: Doing) -> None:
    pilot.app.post_message(Chosen(of(worker)))


def pane(pilot: Pilot[int]) -> WorkerPane:
    return pilot.app.query_one(WorkerPane)


def said(text: str, *, delta: bool = False) -> dict[str, object]:
    return {"type": "text", "text": text, "delta": delta}


async def test_what_a_worker_did_and_does_is_shown_with_its_task_above(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=WIDE) as pilot:
        task = (await shared.delegate("@coder", "mend the build"))["id"]
        await coder.hand.take(task)
        await coder.hand.say(task, TaskState.WORKING, "two of three done")
        await coder.report(said("I look at it"), *one_call())
        choose(pilot, coder)
        await until(pilot, lambda: "✓ Bash  make test" in screen_text(pilot.app))
        await until(pilot, lambda: f"task {task[:8]}" in screen_text(pilot.app))
        shown = screen_text(pilot.app)
        assert "● I look at it" in shown
        assert "│ 4 passed" in shown
        assert "mend the build" in shown
        assert "two of three done" in shown
        await coder.report(said("Now I wri", delta=True))
        await until(pilot, lambda: "● Now I wri" in screen_text(pilot.app))
        await coder.report(said("te a test\nand", delta=True))
        await until(pilot, lambda: "● Now I write a test" in screen_text(pilot.app))
        assert screen_text(pilot.app).count("Now I wri") == 1


def one_call(number: str = "c1", output: str = "4 passed") -> list[dict[str, object]]:
    call = {"type": "tool_call", "call": number, "tool": "Bash", "title": ""}
    result = {"type": "tool_result", "call": number, "status": "ok", "output": output}
    return [call | {"input": {"command": "make test"}}, result]


async def test_who_goes_from_worker_to_worker_never_sees_the_events_of_another(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        writer = await doing(shared, tmp_path, "writer")
        await coder.report(*(said(f"coder says {n}") for n in range(30)))
        await writer.report(*(said(f"writer says {n}") for n in range(30)))
        async with app_on(coder, size=WIDE) as pilot:
            for _ in range(10):
                choose(pilot, coder)
                await pilot.pause()
                choose(pilot, writer)
                await pilot.pause()
            await until(pilot, lambda: "writer says 29" in screen_text(pilot.app))
            await coder.report(said("coder goes on"))
            await writer.report(said("writer goes on"))
            await until(pilot, lambda: "writer goes on" in screen_text(pilot.app))
            assert "coder says" not in screen_text(pilot.app)
            assert "coder goes on" not in screen_text(pilot.app)


async def test_of_a_worker_without_events_the_tasks_are_shown(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder, app_on(coder, size=WIDE) as pilot:
        task = (await shared.delegate("@coder", "count the words"))["id"]
        await coder.hand.take(task)
        choose(pilot, coder)
        await until(pilot, lambda: "it reports no events" in screen_text(pilot.app))
        await until(pilot, lambda: "count the words" in screen_text(pilot.app))
        await coder.hand.say(task, TaskState.WORKING, "half of them")
        await until(pilot, lambda: ": half of them" in screen_text(pilot.app))


async def test_a_person_is_shown_without_an_error(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder, app_on(coder, size=WIDE) as pilot:
        await shared.delegate("@coder", "count the words")
        pilot.app.post_message(Chosen(Target(shared.owner.nick, shared.owner.uid)))
        await until(pilot, lambda: "person" in screen_text(pilot.app))
        await until(pilot, lambda: "count the words" in screen_text(pilot.app))
