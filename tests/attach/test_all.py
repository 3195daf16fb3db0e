"""`A` and `a`: all until the task ends, or always such a thing, on each door in lines; each demands the PIN."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from postroom_a2a.task_state import TaskState
from tests.attach.test_answers import PIN, guarded, leave, type_pins, typed_unseen
from tests.control.doing import REQUEST, Doing, away, working
from tests.control.taskroom import TaskRoom

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.requirement("autonomy-set"),
    pytest.mark.requirement("approval-pin-demanded"),
]


async def at_work(coder: Doing) -> str:
    """A task in which something is asked; its id."""
    task = (await coder.room.delegate("@coder", "fix it"))["id"]
    await coder.hand.take(task)
    await coder.hand.say(task, TaskState.WORKING)
    return task


async def autonomy(coder: Doing) -> list[tuple[str, str | None]]:
    found = (await coder.room.api.get(f"/v1/workers/{coder.uid}/policy")).json()
    return [(each["autonomy"], each["task"]) for each in found["autonomy"]]


async def added(coder: Doing) -> list[str]:
    found = (await coder.room.api.get(f"/v1/workers/{coder.uid}/policy")).json()
    return [each["pattern"] for each in found["added"]]


OTHER = "cd34ab12cd34ab12"
TEST = {"command": "npm test 2>&1 | tail"}
PLAIN = "Bash(npm test 2>&1 | tail)"


async def test_attach(shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with working(shared, tmp_path) as coder, guarded(coder, monkeypatch):
        task = await at_work(coder)
        await coder.asks(task=task)
        with coder.terminal("attach", "@coder") as terminal:
            await away(lambda: terminal.read_until("A: all until"))
            terminal.type("A\r")
            await type_pins(terminal, "\r")
            assert (await coder.decided())["answer"]["channel"] == "attach"
            await away(lambda: terminal.read_until("all until this task ends"))
            await leave(terminal, "until this task ends")
        assert await autonomy(coder) == [("all", task)]
        typed_unseen(terminal)


async def test_a_projects_chat(shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with working(shared, tmp_path, "violet") as coder, guarded(coder, monkeypatch):
        with coder.terminal("chat", "#violet", columns=100) as terminal:
            await away(lambda: terminal.read_until("@coder was added"))
            task = await at_work(coder)
            await coder.asks(task=task)
            await away(lambda: terminal.read_until("/all ab12cd34 until its task ends"))
            terminal.type("/all ab12cd34\r")
            await type_pins(terminal, "\r")
            assert (await coder.decided())["answer"]["channel"] == "chat"
            await leave(terminal, "request ab12cd34 allowed by @maria", "#violet>")
        assert await autonomy(coder) == [("all", task)]


async def test_who_watches_a_task(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with working(shared, tmp_path) as coder, guarded(coder, monkeypatch):
        task = await at_work(coder)
        await coder.asks(task=task)
        with coder.terminal("task", "watch", task) as terminal:
            await away(lambda: terminal.read_until("y or n REASON here"))
            terminal.type("A\n")
            await away(lambda: terminal.read_until("PIN:"))
            terminal.type(f"{PIN}\n")
            assert (await coder.decided())["answer"]["channel"] == "cli"
        assert await autonomy(coder) == [("all", task)]


async def test_the_command(shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with working(shared, tmp_path) as coder, guarded(coder, monkeypatch):
        task = await at_work(coder)
        await coder.asks(task=task)
        words = ("autonomy", "@coder", "all", "--until-task-ends")
        with coder.terminal(*words) as terminal:
            await away(lambda: terminal.read_until("PIN"))
            assert (await coder.approval())["state"] == "pending"
            terminal.type(f"{PIN}\r")
            assert (await coder.decided())["answer"]["channel"] == "cli"
            await away(lambda: terminal.read_until(f"all until task {task[:8]} ends (set by"))
            assert await away(terminal.ended) == 0
        assert await autonomy(coder) == [("all", task)]


async def test_what_was_asked_in_no_task_is_not_allowed_so(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder:
        await coder.asks()
        with coder.terminal("attach", "@coder") as terminal:
            await away(lambda: terminal.read_until("y: allow"))
            terminal.type("A\r")
            await away(lambda: terminal.read_until("it was not asked in a task"))
            await leave(terminal, "not asked in a task")
        assert (await coder.approval(REQUEST))["state"] == "pending"
        assert await autonomy(coder) == []


@pytest.mark.requirement("policy-added-at-once")
async def test_attach_allows_always_what_it_shows_and_what_waits_of_that(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with working(shared, tmp_path) as coder, guarded(coder, monkeypatch):
        await coder.asks(input=TEST)
        await coder.asks(OTHER, input=TEST)
        with coder.terminal("attach", "@coder") as terminal:
            await away(lambda: terminal.read_until(f"a: always {PLAIN}"))
            terminal.type("a\r")
            await type_pins(terminal, "\r")
            assert (await coder.decided())["answer"]["channel"] == "attach"
            waited = (await coder.decided(OTHER))["answer"]
            await leave(terminal, f"does not ask for {PLAIN} any more")
        assert (waited["channel"], waited["reason"]) == ("attach", f"rule {PLAIN}")
        assert await added(coder) == [PLAIN]
        typed_unseen(terminal)


@pytest.mark.requirement("policy-added-at-once")
async def test_who_watches_a_task_allows_always_and_is_told_where_no_rule_can(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with working(shared, tmp_path) as coder, guarded(coder, monkeypatch):
        task = await at_work(coder)
        await coder.asks(task=task, input={"command": "make > out.txt"})
        with coder.terminal("task", "watch", task) as terminal:
            await away(lambda: terminal.read_until("a: not by a rule: it has a redirection"))
            terminal.type("a\n")
            await away(lambda: terminal.read_until("nothing was decided"))
            await coder.asks(OTHER, task=task, input=TEST)
            await coder.decide("denied", pin=PIN)
            await away(lambda: terminal.read_until(f"a: always {PLAIN}"))
            terminal.type("a\n")
            await away(lambda: terminal.read_until("PIN:"))
            assert await added(coder) == []
            terminal.type(f"{PIN}\n")
            assert (await coder.decided(OTHER))["answer"]["channel"] == "cli"
            await away(lambda: terminal.read_until(f"does not ask for {PLAIN} any more"))
        assert await added(coder) == [PLAIN]


@pytest.mark.requirement("policy-added-at-once")
@pytest.mark.parametrize(
    "words, edits",
    [
        (("policy", "@coder", "--allow", PLAIN), False),
        (("autonomy", "@coder", "edits"), True),
        (("autonomy", "@coder", "all"), False),
    ],
)
async def test_the_commands_answer_what_waits_and_say_it(
    shared: TaskRoom,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    edits: bool,
):
    asked: dict[str, Any] = {"tool": "Write", "input": {"file_path": "a.txt"}, "edits": True}
    async with working(shared, tmp_path) as coder, guarded(coder, monkeypatch):
        asks: dict[str, Any] = asked if edits else {"input": TEST}
        await coder.asks(**asks)
        if words[-1] != "all":
            await coder.asks(OTHER, input={"command": "make deploy"})
        with coder.terminal(*words) as terminal:
            await away(lambda: terminal.read_until("PIN"))
            assert (await coder.approval())["state"] == "pending"
            terminal.type(f"{PIN}\r")
            what = "a.txt" if edits else TEST["command"]
            await away(lambda: terminal.read_until(f"allowed ab12cd34, which waited: {what}"))
            assert await away(terminal.ended) == 0
        assert (await coder.approval())["answer"]["channel"] == "cli"
        if words[-1] != "all":
            assert (await coder.approval(OTHER))["state"] == "pending"
