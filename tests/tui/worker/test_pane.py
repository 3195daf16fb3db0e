"""What the right pane shows of a worker, over the wire."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from postroom.client.http import AsyncClient
from postroom.client.stream import AsyncWorkerEvents
from postroom.tui.news import Chosen, Target
from postroom.tui.rowlog.log import RowLog
from postroom.tui.worker.blocks import FIRST, PAGE
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


@pytest.mark.requirement("attach-shows-all-kinds")
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
        await until(pilot, lambda: "two of three done" in screen_text(pilot.app))
        shown = screen_text(pilot.app)
        assert f"task {task[:8]}" in shown
        assert "● I look at it" in shown
        assert "│ 4 passed" in shown
        assert "mend the build" in shown
        await coder.report(said("Now I wri", delta=True))
        await until(pilot, lambda: "● Now I wri" in screen_text(pilot.app))
        await coder.report(said("te a test\nand", delta=True))
        await until(pilot, lambda: "● Now I write a test" in screen_text(pilot.app))
        assert screen_text(pilot.app).count("Now I wri") == 1


async def test_in_a_low_terminal_a_key_shows_the_whole_head(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder, app_on(coder, size=(40, 20)) as pilot:
        task = (await shared.delegate("@coder", "mend the build"))["id"]
        await coder.hand.take(task)
        await coder.hand.say(task, TaskState.WORKING, "two of three done")
        await coder.report(said("I look at it"))
        choose(pilot, coder)
        await pilot.press("3")
        await until(pilot, lambda: "● I look at it" in screen_text(pilot.app))
        await until(pilot, lambda: "mend the" in screen_text(pilot.app))
        assert "1 unread" not in screen_text(pilot.app)
        await pilot.press("h")
        await until(pilot, lambda: "1 unread" in screen_text(pilot.app))
        assert "two of three done" in screen_text(pilot.app)
        assert "● I look at it" in screen_text(pilot.app)
        await pilot.press("h")
        await until(pilot, lambda: "1 unread" not in screen_text(pilot.app))


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
            for _ in range(4):
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


def log(pilot: Pilot[int]) -> RowLog:
    return pane(pilot).query_one(RowLog)


async def test_older_events_come_page_by_page_each_once(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder:
        for start in range(0, FIRST + PAGE + 50, 150):
            await coder.report(*(said(f"says {n}.") for n in range(start, start + 150)))
        async with app_on(coder, size=WIDE) as pilot:
            choose(pilot, coder)
            await until(pilot, lambda: "says 749." in screen_text(pilot.app))
            assert log(pilot).row_count == FIRST
            pane(pilot).focus()
            for _ in range(2):
                count = log(pilot).row_count
                await pilot.press("home")
                await pilot.press("up")
                await until(pilot, lambda count=count: log(pilot).row_count > count)
            await pilot.press("home")
            await until(pilot, lambda: "● says 0." in screen_text(pilot.app))
            await pilot.press("up")
            await pilot.pause()
            assert log(pilot).row_count == 750
            found = [log(pilot).find(f"says {n}.", backwards=False) for n in (3, 400, 700)]
            assert found == [True] * 3


async def test_after_a_lost_connection_nothing_is_missing_and_nothing_comes_twice(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sources: list[AsyncWorkerEvents] = []
    connected, events = asyncio.Event(), AsyncClient.events

    def kept(*words: Any, **more: Any) -> AsyncWorkerEvents:
        sources.append(events(*words, **more))
        sources[-1].connected = connected.set
        return sources[-1]

    monkeypatch.setattr(AsyncClient, "events", kept)
    async with working(shared, tmp_path) as coder, app_on(coder, size=WIDE) as pilot:
        await coder.report(said("before"))
        choose(pilot, coder)
        await until(pilot, lambda: "● before" in screen_text(pilot.app))
        await until(pilot, connected.is_set)
        [source] = sources
        source.shut()
        await coder.report(said("meanwhile"))
        await until(pilot, lambda: "● meanwhile" in screen_text(pilot.app))
        await coder.report(said("after"))
        await until(pilot, lambda: "● after" in screen_text(pilot.app))
        assert log(pilot).row_count == 3
        await until(pilot, lambda: "connecting again" not in screen_text(pilot.app))


async def test_of_a_worker_that_is_removed_what_was_shown_stays(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder, app_on(coder, size=WIDE) as pilot:
        writer = await doing(shared, tmp_path, "writer")
        await writer.report(said("my last words"))
        choose(pilot, writer)
        await until(pilot, lambda: "my last words" in screen_text(pilot.app))
        await until(pilot, lambda: "@writer starting" in screen_text(pilot.app))
        await shared.parts.workers.remove(writer.uid)
        await until(pilot, lambda: "removed; what it did stays here" in screen_text(pilot.app))
        assert "my last words" in screen_text(pilot.app)


@pytest.mark.requirement("attach-shows-all-kinds")
@pytest.mark.parametrize("size", [(40, 20), (80, 24)], ids=str)
async def test_the_pane_is_of_use_in_small_terminals(
    shared: TaskRoom, tmp_path: Path, size: tuple[int, int]
):
    async with working(shared, tmp_path) as coder, app_on(coder, size=size) as pilot:
        await coder.report(said("[b]I[/b] look \x1b[2Jat it"), *one_call())
        choose(pilot, coder)
        pilot.app.query_one(WorkerPane)
        app: Any = pilot.app
        app.look("worker")
        await until(pilot, lambda: "✓ Bash  make test" in screen_text(pilot.app))
        shown = screen_text(pilot.app)
        assert "@coder" in shown
        assert "[b]I[/b] look" in shown
        assert "\x1b" not in shown
        await pilot.press("s")
        await until(pilot, lambda: "stop @coder?" in screen_text(pilot.app))
        await pilot.press("escape", "t")
        await until(pilot, lambda: "it has had no task yet" in screen_text(pilot.app))


async def test_who_does_not_operate_is_shown_the_card_and_told_why_there_is_no_more(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        await coder.report(said("a secret"))
        key = (await shared.api.post("/v1/keys", json={"scopes": ["read"]})).json()["key"]
        record = json.loads((coder.state / "server.json").read_text())
        (coder.state / "server.json").write_text(json.dumps(record | {"token": key}))
        async with app_on(coder, size=WIDE) as pilot:
            choose(pilot, coder)
            await until(pilot, lambda: "who operates them" in screen_text(pilot.app))
            await until(pilot, lambda: "I am coder." in screen_text(pilot.app))
            assert "a secret" not in screen_text(pilot.app)
            assert "@coder offline  worker" in screen_text(pilot.app)
