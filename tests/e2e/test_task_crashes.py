"""Processes are killed with SIGKILL while tasks are worked on: each task ends once, and every attempt is seen."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import PostRoom, gone, running_room, until
from tests.e2e.processes import agent_of, sidecar_of
from tests.e2e.taskwork import Station, assert_all_ended, station

ENDS = 30.0


@pytest.fixture(scope="module")
def of_module() -> Iterator[PostRoom]:
    with running_room() as room:
        yield room


@pytest.fixture
def room(of_module: PostRoom) -> Iterator[PostRoom]:
    """The post room of this module; the workers of a test go with it, and free their nicks."""
    yield of_module
    with of_module.client() as client:
        for worker in client.workers():
            client.remove(worker["nick"])


def give(room: PostRoom, to: Station, text: str) -> str:
    with room.client() as client:
        return client.delegate(text, to=f"@{to.nick}")["id"]


def ended(room: PostRoom, task: str) -> dict[str, Any]:
    with room.client() as client:
        view = client.await_task(task, "final", ENDS)
    assert view["final"], view
    return dict(view)


def asks(room: PostRoom, task: str) -> None:
    with room.client() as client:
        assert client.await_task(task, "settled", ENDS)["state"] == "input-required"


def notes(where: Station, *lines: str) -> None:
    """Wait until the agent has written down exactly these."""
    until(lambda: where.notes == list(lines))


def kill(pid: int | None) -> None:
    assert pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid))


def pid_of(room: PostRoom, nick: str) -> int:
    with room.client() as client:
        pid = client.worker(nick)["pid"]
    assert pid
    return pid


def restart(room: PostRoom, nick: str) -> None:
    with room.client() as client:
        client.restart(nick)


def kill_sandbox(room: PostRoom, nick: str) -> None:
    kill(pid_of(room, nick))
    restart(room, nick)


def kill_sidecar(room: PostRoom, nick: str) -> None:
    sidecar = sidecar_of(pid_of(room, nick))
    kill(sidecar.pid if sidecar else None)
    restart(room, nick)


def kill_agent(room: PostRoom, nick: str) -> None:
    agent = agent_of(pid_of(room, nick))
    kill(agent.pid if agent else None)


def kill_control(room: PostRoom, _: str) -> None:
    server = room.server
    kill(server["pid"])
    until(lambda: gone(server["nats_pid"]))
    room.up()


STRIKES = (kill_sandbox, kill_sidecar, kill_agent, kill_control)


def attempts(room: PostRoom, task: str) -> list[int]:
    """The attempts that the person is shown."""
    events = room.json("task", "show", task)["events"]
    return sorted({event["attempt"] for event in events if event["state"] == "working"})


@pytest.mark.requirement("task-kill-ends-once")
def test_a_task_whose_worker_is_killed_in_mid_task_is_done_once_by_a_second_attempt(
    room: PostRoom,
) -> None:
    worker = station(room, "worker")
    for strike in STRIKES:
        name = strike.__name__
        task, behind = give(room, worker, f"hold {name}"), give(room, worker, f"quick {name}-2")
        until(lambda name=name: f"holds {name}" in worker.notes)

        strike(room, "worker")
        until(lambda name=name: worker.notes.count(f"holds {name}") == 2)
        worker.let_go(name)

        view = ended(room, task)
        assert (view["state"], view["status_text"], view["attempt"]) == (
            "completed",
            f"did {name}",
            2,
        )
        assert ended(room, behind)["attempt"] == 1
        assert worker.notes[-3:] == [f"did {name}", f"begins {name}-2", f"did {name}-2"]
        assert attempts(room, task) == [1, 2]
    assert_all_ended(room)


@pytest.mark.requirement("task-kill-ends-once")
def test_a_worker_that_is_restarted_on_purpose_loses_no_attempt(room: PostRoom) -> None:
    worker = station(room, "worker")
    task = give(room, worker, "hold a")
    for number in range(1, 4):
        notes(worker, *["begins a", "holds a"] * number)
        restart(room, "worker")
    notes(worker, *["begins a", "holds a"] * 4)
    worker.let_go("a")

    assert ended(room, task)["state"] == "completed"
    assert attempts(room, task) == [1, 2, 3, 4]
    assert worker.notes.count("did a") == 1
    assert_all_ended(room)


@pytest.mark.requirement("task-kill-ends-once")
def test_a_task_goes_on_while_the_server_is_killed_and_is_begun_once(room: PostRoom) -> None:
    worker = station(room, "worker")
    task = give(room, worker, "hold a")
    notes(worker, "begins a", "holds a")

    os.kill(room.server["nats_pid"], signal.SIGKILL)
    worker.let_go("a")

    view = ended(room, task)
    assert (view["state"], view["attempt"]) == ("completed", 1)
    notes(worker, "begins a", "holds a", "did a")
    assert_all_ended(room)


@pytest.mark.requirement("task-kill-ends-once")
def test_control_plane_and_server_killed_at_once_leave_no_task_open(room: PostRoom) -> None:
    worker = station(room, "worker")
    held, behind = give(room, worker, "hold a"), give(room, worker, "quick b")
    notes(worker, "begins a", "holds a")
    server, sandbox = room.server, room.worker("worker")["pid"]
    os.kill(server["nats_pid"], signal.SIGKILL)
    kill(server["pid"])
    until(lambda: gone(sandbox))
    worker.let_go("a")

    room.up()

    assert [ended(room, task)["state"] for task in (held, behind)] == ["completed"] * 2
    assert attempts(room, held) == [1, 2]
    assert_all_ended(room)


@pytest.mark.requirement("task-kill-ends-once")
def test_a_task_that_waits_for_an_answer_waits_on_when_everything_is_killed(room: PostRoom) -> None:
    worker = station(room, "worker")
    task = give(room, worker, "ask a")
    asks(room, task)
    kill_sandbox(room, "worker")
    kill_control(room, "worker")
    assert room.json("status")["attention"][0]["id"] == task
    kill(pid_of(room, "worker"))
    until(lambda: room.worker("worker")["state"] == "failed")

    room.run("task", "answer", task, "this one")
    restart(room, "worker")

    view = ended(room, task)
    assert (view["state"], view["status_text"]) == ("completed", "this one")
    assert worker.notes == ["begins a", "begins a", "did a"]
    assert_all_ended(room)


@pytest.mark.requirement("task-kill-requester-told")
def test_a_requester_that_is_killed_learns_after_its_restart_what_it_asked_for(
    room: PostRoom,
) -> None:
    helper, lead = station(room, "helper"), station(room, "lead")
    task = give(room, lead, "pass hold a")
    notes(helper, "begins a", "holds a")
    kill(pid_of(room, "lead"))
    helper.let_go("a")
    until(lambda: "did a" in helper.notes)
    restart(room, "lead")

    view = ended(room, task)
    assert (view["state"], view["status_text"], view["attempt"]) == ("completed", "did a", 2)
    assert helper.notes == ["begins a", "holds a", "did a"]
    assert_all_ended(room)


@pytest.mark.requirement("task-kill-requester-told")
def test_a_requester_that_forgets_what_it_was_told_is_told_again_when_it_asks_again(
    room: PostRoom,
) -> None:
    helper, lead = station(room, "helper"), station(room, "lead")
    strikes = (kill_sandbox, kill_agent, restart)
    for strike in strikes:
        name = strike.__name__
        task = give(room, lead, f"keep quick {name}")
        until(lambda name=name: f"holds {name}" in lead.notes)

        strike(room, "lead")
        until(lambda name=name: lead.notes.count(f"holds {name}") == 2)
        lead.let_go(name)

        view = ended(room, task)
        assert (view["state"], view["status_text"], view["attempt"]) == (
            "completed",
            f"did {name}",
            2,
        )
        assert helper.notes[-2:] == [f"begins {name}", f"did {name}"]
    assert len(helper.notes) == 2 * len(strikes)
    assert_all_ended(room)


@pytest.mark.requirement("task-kill-ends-once")
def test_a_task_of_a_worker_that_died_is_canceled_and_never_begun_again(room: PostRoom) -> None:
    worker = station(room, "worker")
    task = give(room, worker, "hold a")
    notes(worker, "begins a", "holds a")
    kill(pid_of(room, "worker"))
    until(lambda: room.worker("worker")["state"] == "failed")

    room.run("task", "cancel", task)
    restart(room, "worker")

    assert ended(room, give(room, worker, "quick b"))["state"] == "completed"
    assert ended(room, task)["state"] == "canceled"
    notes(worker, "begins a", "holds a", "begins b", "did b")
    assert_all_ended(room)


@pytest.mark.requirement("task-kill-ends-once")
def test_a_worker_that_is_removed_in_mid_task_leaves_no_task_open(room: PostRoom) -> None:
    worker, lead = station(room, "helper"), station(room, "lead")
    given = [give(room, worker, text) for text in ("ask a", "hold b", "quick c")]
    asks(room, given[0])
    passed = give(room, lead, "pass quick d")
    until(lambda: "holds b" in worker.notes)

    room.run("remove", "helper", "--yes")

    assert [ended(room, task)["state"] for task in given] == ["failed"] * 3
    assert ended(room, passed)["state"] == "completed"
    assert any("told the worker was removed" in note for note in lead.notes)
    assert_all_ended(room)


@pytest.mark.requirement("task-kill-ends-once")
def test_a_task_that_kills_its_agent_each_time_fails_and_the_next_one_is_done(
    room: PostRoom,
) -> None:
    worker = station(room, "worker", restarts=5)
    task, behind = give(room, worker, "quit a"), give(room, worker, "quick b")

    view = ended(room, task)
    assert view["state"] == "failed"
    assert view["status_text"].startswith("lost 3 times")
    assert ended(room, behind)["state"] == "completed"
    assert attempts(room, task) == [1, 2, 3]
    assert_all_ended(room)
