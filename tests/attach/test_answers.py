"""What a person answers where it is shown, in a pseudo terminal: with a PIN, an editor, words, or too late."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from postroom.cli.prompt import unseen
from postroom.identity import pins
from postroom_a2a.task_state import TaskState
from tests.cli.terminal import Terminal
from tests.control.doing import Doing, away, working
from tests.control.taskroom import TaskRoom

pytestmark = pytest.mark.anyio

PIN = "4711-and-more"


@asynccontextmanager
async def guarded(coder: Doing, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    """Every decision demands the PIN."""
    monkeypatch.setitem(pins._COST, "n", 2)
    assert (await coder.room.api.put("/v1/pin", json={"pin": PIN})).status_code == 200
    try:
        yield
    finally:
        cleared = await coder.room.api.put("/v1/pin", json={"pin": "", "old": PIN})
        assert cleared.status_code == 200


async def behind(terminal: Terminal, before: str, wanted: str) -> None:
    """Read until `wanted` stands behind the last `before`: a prompt that is drawn anew reads what is typed."""
    await away(lambda: terminal.read_until(before))
    while wanted not in terminal.plain.rpartition(before)[2]:
        await away(lambda: terminal.read_until(wanted, terminal.plain.count(wanted) + 1))


async def leave(terminal: Terminal, before: str, prompt: str = "@coder>") -> None:
    await behind(terminal, before, prompt)
    terminal.type("\x04")
    assert await away(terminal.ended) == 0


async def type_pins(terminal: Terminal, end: str) -> None:
    """A wrong PIN, then the right one, each when it is asked for."""
    await away(lambda: terminal.read_until("PIN:"))
    terminal.type(f"0815-and-more{end}")
    await away(lambda: terminal.read_until("that is not your PIN: 4 more tries"))
    await behind(terminal, "more tries", "PIN:")
    terminal.type(f"{PIN}{end}")


def typed_unseen(terminal: Terminal) -> None:
    assert "0815" not in terminal.text
    assert "4711" not in terminal.text
    assert "and-more" not in terminal.text


@pytest.mark.requirement("approval-pin-demanded")
@pytest.mark.parametrize("kind, end", [("xterm", "\r"), ("dumb", "\n")])
async def test_attach_asks_for_the_pin_and_the_line_is_as_before_afterwards(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, end: str
):
    async with working(shared, tmp_path) as coder, guarded(coder, monkeypatch):
        await coder.asks()
        with coder.terminal("attach", "@coder", TERM=kind) as terminal:
            await away(lambda: terminal.read_until("y: allow"))
            terminal.type(f"y{end}")
            await type_pins(terminal, end)
            assert (await coder.decided())["answer"]["channel"] == "attach"
            await away(lambda: terminal.read_until("allowed by @maria"))
            if kind == "xterm":
                await behind(terminal, "allowed by @maria", "@coder>")
            terminal.type("/interrupt shown again")
            await away(lambda: terminal.read_until("/interrupt shown"))
            terminal.type(end)
            await away(lambda: terminal.read_until("interrupted by @maria: shown again"))
            if kind == "xterm":
                await behind(terminal, "shown again", "@coder>")
            terminal.type("\x04")
            assert await away(terminal.ended) == 0
        typed_unseen(terminal)


@pytest.mark.requirement("approval-pin-demanded")
async def test_a_projects_chat_asks_for_the_pin(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with (
        working(shared, tmp_path, "indigo") as coder,
        guarded(coder, monkeypatch),
    ):
        with coder.terminal("chat", "#indigo", columns=100) as terminal:
            await away(lambda: terminal.read_until("@coder was added"))
            await coder.asks()
            await away(lambda: terminal.read_until("/approve ab12cd34"))
            terminal.type("/approve ab12cd34\r")
            await type_pins(terminal, "\r")
            assert (await coder.decided())["answer"]["channel"] == "chat"
            await leave(terminal, "request ab12cd34 allowed by @maria", "#indigo>")
        typed_unseen(terminal)


@pytest.mark.requirement("approval-pin-demanded")
async def test_who_watches_a_task_is_asked_for_the_pin_and_may_leave_it(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with working(shared, tmp_path) as coder, guarded(coder, monkeypatch):
        task = (await coder.room.delegate("@coder", "fix it"))["id"]
        await coder.hand.take(task)
        await coder.hand.say(task, TaskState.WORKING)
        await coder.asks(task=task)
        with coder.terminal("task", "watch", task) as terminal:
            await away(lambda: terminal.read_until("y or n REASON here"))
            terminal.type("y\n")
            await away(lambda: terminal.read_until("PIN:"))
            terminal.type("\n")
            await away(lambda: terminal.read_until("postroom approve ab12cd34", 2))
            assert (await coder.approval())["state"] == "pending"
            terminal.type("y\n")
            await away(lambda: terminal.read_until("PIN:", 2))
            terminal.type(f"{PIN}\n")
            assert (await coder.decided())["state"] == "allowed"
            await coder.hand.say(task, TaskState.COMPLETED, "fixed")
            assert await away(terminal.ended) == 0
        typed_unseen(terminal)


@pytest.mark.requirement("attach-answers")
async def test_in_attach_the_editor_changes_what_is_allowed(shared: TaskRoom, tmp_path: Path):
    script = tmp_path / "editor.py"
    script.write_text("import sys\nopen(sys.argv[1], 'w').write('make test\\n')\n")
    async with working(shared, tmp_path) as coder:
        await coder.asks(input={"command": "make deploy"})
        with coder.terminal(
            "attach", "@coder", EDITOR=f"{sys.executable} {script}", VISUAL=""
        ) as terminal:
            await away(lambda: terminal.read_until("e: edit"))
            terminal.type("e\r")
            found = await coder.decided()
            await away(lambda: terminal.read_until("edited by @maria"))
            await behind(terminal, "edited by @maria", "@coder>")
            terminal.type("/interrupt it goes on\r")
            await leave(terminal, "interrupted by @maria: it goes on")
        assert (found["state"], found["answer"]["input"]) == ("edited", {"command": "make test"})


@pytest.mark.requirement("approval-edit-plain")
async def test_in_attach_nothing_is_edited_where_the_agent_takes_no_edited_input(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        await coder.asks(fixed=True)
        with coder.terminal("attach", "@coder") as terminal:
            await away(lambda: terminal.read_until("y: allow"))
            terminal.type("e\r")
            await away(lambda: terminal.read_until("@coder takes no edited input"))
            assert "e: edit" not in terminal.plain
            await leave(terminal, "no edited input")
        assert (await coder.approval())["state"] == "pending"


@pytest.mark.requirement("attach-answers")
async def test_in_attach_a_question_of_the_agent_is_answered_with_words(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        await coder.asks(kind="question", tool="", title="which branch?", input={})
        with coder.terminal("attach", "@coder") as terminal:
            await away(lambda: terminal.read_until("type the answer"))
            terminal.type("the one of yesterday\r")
            found = await coder.decided()
            await leave(terminal, "edited ab12cd34")
        assert "? @coder asks: which branch?" in terminal.plain
        assert found["answer"]["input"] == {"text": "the one of yesterday"}


@pytest.mark.requirement("attach-answers")
async def test_what_ends_by_itself_while_it_is_shown_is_said_and_takes_no_answer(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        await coder.asks()
        with coder.terminal("attach", "@coder") as terminal:
            await away(lambda: terminal.read_until("y: allow"))
            gone = {"type": "control_response", "request": "ab12cd34ab12cd34"}
            await coder.report(gone | {"decision": "withdrawn", "channel": "agent", "by": {}})
            await away(lambda: terminal.read_until("withdrawn by the agent itself"))
            terminal.type("y\r")
            await leave(terminal, "> y")  # it is a message now
        assert (await coder.approval())["state"] == "withdrawn"


@pytest.mark.requirement("attach-answers")
async def test_in_a_projects_chat_a_tasks_question_is_answered(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path, "orange") as coder:
        task = (await coder.room.delegate("@coder", "fix it"))["id"]
        with coder.terminal("chat", "#orange", columns=100) as terminal:
            await away(lambda: terminal.read_until("@coder was added"))
            await coder.hand.take(task)
            await coder.hand.say(task, TaskState.WORKING)
            await coder.hand.say(task, TaskState.INPUT_REQUIRED, "which branch?")
            await away(lambda: terminal.read_until(f"/answer {task[:8]} TEXT"))
            terminal.type(f"/answer {task[:8]} main\r")
            await leave(terminal, f"{task[:8]} answered", "#orange>")


def test_the_line_is_awaited_before_its_mark_shows(capsys: pytest.CaptureFixture[str]):
    ours, theirs = os.openpty()
    shown: list[str] = []
    try:
        with unseen(theirs, "PIN: ", lambda: shown.append(capsys.readouterr().err)):
            shown.append(capsys.readouterr().err)
    finally:
        os.close(ours)
        os.close(theirs)
    assert shown == ["", "PIN: "]
