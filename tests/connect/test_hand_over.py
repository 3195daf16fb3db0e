"""Work that is handed to a session in a terminal, and by one: over the real wire it comes as mail, by hook and wake."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.protocol.content import ABOUT
from postroom.protocol.frame import AGAIN
from postroom.protocol.shapes import Task
from tests.connect.conftest import DEADLINE, Connected, connected, until
from tests.connect.test_doors import call
from tests.connect.test_relay import server
from tests.connect.test_run import opened
from tests.e2e.conftest import PostRoom, gone, running_room
from tests.workspaces.bench import QUIET, git, repository
from tests.workspaces.test_room import spawn


def task(mine: Connected, ref: str) -> Task:
    with mine.room.client() as client:
        return client.task(ref)


@pytest.mark.requirement("session-hands-over")
def test_a_session_gets_a_task_as_mail_and_its_requester_the_result(mine: Connected):
    app, nick = opened(mine)
    waiter = app.wait()
    app.stop()

    given = mine.room.json("delegate", nick, "choose a shape")["id"]

    assert waiter.wait(DEADLINE) == 2, "it is woken"
    assert waiter.stderr
    text = waiter.stderr.read().decode()
    assert f"It asks for task {given}" in text
    assert "| choose a shape" in text
    app.prompt("t2", text=f"<task-notification>{text}")
    with server(app) as tools:
        tools.call("a2a_report_task", task=given, state="working", text="I look")
        assert task(mine, given)["state"] == "working"
        said = tools.call(
            "a2a_report_task", task=given, state="completed", text="a list", artifact="shape"
        )
        assert "completed" in said
    shown = mine.room.run("task", "show", given)
    assert "a list" in shown
    assert task(mine, given)["state"] == "completed"


@pytest.mark.requirement("session-hands-over")
def test_a_session_that_asks_about_its_task_gets_the_answer_and_a_cancel_as_mail(mine: Connected):
    app, nick = opened(mine)
    given = mine.room.json("delegate", nick, "choose a shape")["id"]
    until(lambda: mine.sessions()[nick[1:]]["waiting"])
    app.prompt("t2")
    with server(app) as tools:
        tools.call("a2a_ask_human", task=given, text="a list or a map?", wait=0)
    waiter = app.wait()
    app.stop()

    mine.room.run("task", "answer", given, "a map")

    assert waiter.wait(DEADLINE) == 2
    assert waiter.stderr
    text = waiter.stderr.read().decode()
    assert f"From {mine.person} (person, the owner of this session)" in text
    assert "| a map" in text
    assert f"It is about task {given}" in text
    app.prompt("t3", text=f"<task-notification>{text}")

    mine.room.run("task", "cancel", given)

    until(lambda: mine.sessions()[nick[1:]]["waiting"])
    text = app.at("PostToolBatch", tool_calls=[])
    assert "canceled: do no more for it" in text
    assert "canceled by" in text


@pytest.mark.requirement("session-woken-rightly")
def test_a_message_that_names_a_task_of_others_wakes_nobody(mine: Connected):
    app, nick = opened(mine)
    given = mine.room.json("delegate", nick, "choose a shape")["id"]
    until(lambda: mine.sessions()[nick[1:]]["waiting"])
    app.prompt("t2")
    app.stop()
    waiter = app.wait()
    until(lambda: mine.sessions()[nick[1:]]["waiter"])
    message = {
        "messageId": "m-1",
        "role": "ROLE_USER",
        "parts": [{"text": f"Task {given[:8]} is canceled."}],
        "metadata": {ABOUT: given},
    }

    params = {"message": message, "configuration": {"returnImmediately": True}}
    call(mine, f"/a2a/{nick[1:]}", "SendMessage", params, mine.key_of("liar"))

    until(lambda: mine.sessions()[nick[1:]]["waiting"])
    assert waiter.poll() is None
    text = app.prompt("t3")
    assert "From @liar (agent)" in text
    assert f"It is about task {given}" not in text


@pytest.fixture(scope="module")
def workshop() -> Iterator[PostRoom]:
    with running_room(**QUIET) as room:
        yield room


@pytest.mark.requirement("session-hands-over")
def test_a_session_gets_the_result_of_a_worker_as_mail_with_the_branch(
    workshop: PostRoom, tmp_path: Path
):
    app_repository = repository(tmp_path / "app")
    spawn(workshop, "coder", "--workspace", str(app_repository))
    with connected(workshop, tmp_path / "home") as mine:
        app, _ = opened(mine)
        waiter = app.wait()
        with server(app) as tools:
            script = "echo two >> a.txt; git commit -qam second; echo it is done"
            said = tools.call("a2a_delegate_task", to="@coder", text=script)
        app.stop()
        given = said.partition("task ")[2].split()[0]

        assert waiter.wait(DEADLINE) == 2, "the result wakes it"
        assert waiter.stderr
        text = waiter.stderr.read().decode()
        assert "From @coder (worker)" in text
        assert f"| Task {given[:8]} is completed." in text
        assert "| Its work is on the branch postroom/coder." in text
        assert "| it is done" in text
        assert git(app_repository, "show", "postroom/coder:a.txt") == "one\ntwo"


@pytest.mark.requirement("session-hands-over")
def test_a_result_comes_once_over_kills_of_the_control_plane(workshop: PostRoom, tmp_path: Path):
    spawn(workshop, "steady")
    with connected(workshop, tmp_path) as mine:
        app, nick = opened(mine)
        with server(app) as tools:
            said = tools.call("a2a_delegate_task", to="@steady", text="sleep 0.3; echo it is done")
        given = said.partition("task ")[2].split()[0]

        killed(workshop)
        until(lambda: results(workshop, given))
        killed(workshop)
        until(lambda: mine.status()["connected"])
        until(lambda: mine.sessions()[nick[1:]]["waiting"])

        assert len(results(workshop, given)) == 1
        text = app.prompt("t2")
        assert text.count(f"| Task {given[:8]} is completed.") == 1
        assert AGAIN not in text


def results(room: PostRoom, task: str) -> list[str]:
    """The ids of the messages that bring the end of a task."""
    with room.client() as client:
        params = {"text": f"Task {task[:8]} is completed."}
        return [
            each["id"]
            for each in client.transport.call("GET", "/v1/messages", params=params)["messages"]
        ]


def killed(room: PostRoom) -> None:
    """SIGKILL the control plane, and start it again."""
    pid = room.server["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid))
    room.up()
