"""`postroom attach`, over the real wire, in a pseudo terminal or a pipe."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from postroom.cli.chat.attached import Session, View
from postroom.client.http import Client
from postroom.projection.changes import MAIL
from postroom_a2a.task_state import TaskState
from tests.attach.test_answers import leave
from tests.cli.conftest import LIMIT
from tests.control.doing import REQUEST, away, piped, working
from tests.control.taskroom import SECONDS, TaskRoom

pytestmark = pytest.mark.anyio

TURN = {"turn": "t2", "message": "99887766"}


def text(said: str, **more: object) -> dict[str, object]:
    return {"type": "text", "text": said, **more}


@pytest.mark.requirement("attach-shows-all-kinds")
async def test_attach_begins_with_the_last_turn_and_goes_on_live(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder:
        await coder.report(text("of an earlier turn", turn="t1"), text("begun", **TURN))
        with coder.terminal("attach", "@coder", columns=40) as terminal:
            await away(lambda: terminal.read_until("● begun"))
            await coder.report(
                {"type": "tool_call", "call": "1", "tool": "Bash", "input": {"command": "x" * 60}},
                text("live\x1b]0;evil\x07 " + "word " * 20, **TURN),
            )
            await away(lambda: terminal.read_until("word", times=20))
            terminal.type("\x04")
            assert await away(terminal.ended) == 0
        assert "earlier turn" not in terminal.plain
        assert "── @coder" in terminal.plain
        assert "\x1b]0;evil" not in terminal.text
        lines = (line for line in terminal.plain.splitlines() if "(CPR)" not in line)
        assert all(len(line.removeprefix("@coder>")) <= 40 for line in lines)


@pytest.mark.requirement("attach-shows-all-kinds")
async def test_all_events_are_replayed_as_json_and_each_comes_once(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        await coder.report(*(text(str(number)) for number in range(300)))
        await coder.report(*(text(str(number)) for number in range(300, 600)))
        words = ("attach", "@coder", "--from", "0", "--json", "--state", str(tmp_path))
        with piped(*words) as process:
            assert process.stdout is not None
            seen = [json.loads(await away(process.stdout.readline)) for _ in range(600)]
            await coder.report(text("live"))
            seen.append(json.loads(await away(process.stdout.readline)))
            process.send_signal(signal.SIGINT)
            assert await away(lambda: process.wait(LIMIT)) == 130
        assert [event["text"] for event in seen] == [*map(str, range(600)), "live"]
        assert [event["id"] for event in seen] == sorted({event["id"] for event in seen})


@pytest.mark.requirement("attach-answers")
async def test_what_the_agent_asks_is_shown_exactly_and_answered_there(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        with coder.terminal("attach", "@coder") as terminal:
            await away(lambda: terminal.read_until("── @coder"))
            await coder.asks()
            await away(lambda: terminal.read_until("y: allow"))
            terminal.type("n not on a Friday\r")
            found = await coder.decided()
            await leave(terminal, "(attach): not on a Friday")
        assert "$ make deploy TARGET=\\u{202e}prod && echo done" in terminal.plain
        assert (found["state"], found["answer"]["channel"]) == ("denied", "attach")
        assert found["answer"]["reason"] == "not on a Friday"


@pytest.mark.requirement("approval-shown-decided")
async def test_what_is_allowed_stands_right_above_the_hint_whatever_the_worker_says_of_it_later(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        with coder.terminal("attach", "@coder") as terminal:
            await away(lambda: terminal.read_until("── @coder"))
            await coder.asks()
            await away(lambda: terminal.read_until("y: allow"))
            await coder.asks(input={"command": "ls"})
            await away(lambda: terminal.read_until("y: allow", times=2))
            terminal.type("y\r")
            await coder.decided()
            terminal.type("\x04")
            await away(terminal.ended)
        _, harmless, after = terminal.plain.partition("$ ls")
        assert harmless
        assert "$ make deploy" in after.partition("y: allow")[0]


@pytest.mark.requirement("approval-shown-decided")
async def test_a_line_for_what_is_settled_meanwhile_does_not_answer_the_next_request(
    shared: TaskRoom, tmp_path: Path
):
    second = "ff12cd34ab12cd34"
    async with working(shared, tmp_path) as coder:
        await coder.asks(input={"command": "ls"})
        await coder.asks(second, input={"command": "rm -rf /"})

        def typed() -> None:
            with Client.at(tmp_path, "") as client:
                worker = client.worker("@coder")
                view = View(worker, as_json=False)
                session = Session(client, worker, view, lambda _: None, descriptor=0)  # ty: ignore
                for event in client.past_events(coder.uid, after_id=0, limit=10):
                    session._take(event)
                session._offer()
                # Settled, and the event about it has not come here yet.
                client.control(coder.uid, REQUEST, "denied", channel="api")
                session._typed("y")

        await away(typed)
        assert (await coder.approval(second))["state"] == "pending"


@pytest.mark.requirement("attach-answers")
async def test_an_editor_that_fails_decides_nothing_and_one_stays_attached(
    shared: TaskRoom, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("VISUAL", "false")
    async with working(shared, tmp_path) as coder:
        await coder.asks()
        with coder.terminal("attach", "@coder") as terminal:
            await away(lambda: terminal.read_until("y: allow"))
            terminal.type("e\r")
            await away(lambda: terminal.read_until("nothing was decided"))
            terminal.type("y\r")
            assert (await coder.decided())["state"] == "allowed"
            terminal.type("\x04")
            await away(terminal.ended)


@pytest.mark.requirement("attach-answers")
async def test_what_was_answered_elsewhere_is_said_and_a_line_is_a_message_again(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        await coder.asks()
        with coder.terminal("attach", "@coder") as terminal:
            await away(lambda: terminal.read_until("y: allow"))
            await coder.decide("allowed")
            await away(lambda: terminal.read_until("allowed by @maria (cli)"))
            terminal.type("y\r")
            mail = await _mail(coder.room, coder.uid)
            terminal.type("\x04")
            await away(terminal.ended)
        assert mail["text"] == "y"


@pytest.mark.requirement("attach-answers")
async def test_interrupt_is_said_to_the_agent(shared: TaskRoom, tmp_path: Path):
    async with working(shared, tmp_path) as coder:
        with coder.terminal("attach", "@coder") as terminal:
            await away(lambda: terminal.read_until("── @coder"))
            terminal.type("/interrupt the wrong branch\r")
            await away(lambda: terminal.read_until("interrupted by @maria: the wrong branch"))
            terminal.type("\x03")
            assert await away(terminal.ended) == 0


async def test_in_a_pipe_nothing_is_read_and_what_waits_is_not_answered(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        await coder.asks()
        with piped("attach", "@coder", "--state", str(tmp_path)) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("y\n")
            process.stdin.close()
            await coder.report(text("the end"))
            while "the end" not in await away(process.stdout.readline):
                pass
            process.send_signal(signal.SIGINT)
        assert (await coder.approval())["state"] == "pending"


async def _mail(room: TaskRoom, uid: str) -> dict[str, str]:
    """The message that was sent to the worker."""

    async def read() -> list[dict[str, str]]:
        return (await room.api.get(f"/v1/chats/{uid}/messages")).json()["messages"]

    found = await room.parts.changes.until(MAIL, read, bool, SECONDS)
    return found[-1]


@pytest.mark.requirement("attach-shows-all-kinds")
async def test_who_watches_a_task_in_a_terminal_sees_what_is_done_for_it_and_answers_there(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        task = (await coder.room.delegate("@coder", "fix it"))["id"]
        await coder.hand.take(task)
        await coder.hand.say(task, TaskState.WORKING)
        with coder.terminal("task", "watch", task) as terminal:
            await away(lambda: terminal.read_until("working"))
            await coder.report(text("for another", task="0" * 32), text("looking", task=task))
            await coder.asks(task=task)
            await away(lambda: terminal.read_until("y or n REASON here"))
            terminal.type("maybe\n")
            await away(lambda: terminal.read_until("maybe is no answer; nothing was decided"))
            terminal.type("y\n")
            assert (await coder.decided())["state"] == "allowed"
            await coder.hand.say(task, TaskState.COMPLETED, "fixed")
            assert await away(terminal.ended) == 0
        assert "● looking" in terminal.plain
        assert "for another" not in terminal.plain
        assert "$ make deploy" in terminal.plain


@pytest.mark.requirement("attach-shows-all-kinds")
async def test_a_script_that_watches_a_task_sees_the_task_alone_unless_it_wants_events(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path) as coder:
        task = (await coder.room.delegate("@coder", "fix it"))["id"]
        await coder.hand.take(task)
        await coder.report(text("looking", task=task))
        words = ("task", "watch", task, "--json", "--state", str(tmp_path))
        with piped(*words) as plain, piped(*words, "--events") as wanted:
            assert plain.stdout is not None
            assert wanted.stdout is not None
            for process in (plain.stdout, wanted.stdout):
                assert json.loads(await away(process.readline))["type"] == "task"
            await coder.hand.say(task, TaskState.WORKING)
            await coder.hand.say(task, TaskState.COMPLETED, "fixed")
            kinds = [
                {json.loads(line)["type"] for line in await away(process.readlines)}
                for process in (plain.stdout, wanted.stdout)
            ]
        assert "event" not in kinds[0]
        assert "event" in kinds[1]


@pytest.mark.requirement("attach-answers")
async def test_in_a_projects_chat_what_is_asked_is_shown_exactly_and_approved_there(
    shared: TaskRoom, tmp_path: Path
):
    async with working(shared, tmp_path, "violet") as coder:
        with coder.terminal("chat", "#violet", columns=100) as terminal:
            await away(lambda: terminal.read_until("@coder was added"))
            await coder.asks()
            await away(lambda: terminal.read_until("/approve ab12cd34"))
            terminal.type("/deny ab12cd34 not today\r")
            found = await coder.decided()
            await away(lambda: terminal.read_until("has its request ab12cd34 denied by @maria"))
            terminal.type("\x04")
            await away(terminal.ended)
        assert (found["answer"]["channel"], found["answer"]["reason"]) == ("chat", "not today")
        assert "TARGET=\\u{202e}prod" in terminal.plain
