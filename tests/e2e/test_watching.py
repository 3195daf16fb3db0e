"""What a person sees live of a post room that runs: tasks, failures, logs, across restarts of all parts."""

from __future__ import annotations

import select
import signal
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import IO

import pytest

from tests.e2e.conftest import DEADLINE, PostRoom, running_room

AGENT = """
import json, os, sys, time

def say(**line):
    print(json.dumps(line), flush=True)

print("begins\\n    indented", file=sys.stderr, flush=True)
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "task":
        say(type="update", task=line["id"], text="step 1 of 2")
        if line["text"] == "fail":
            while not os.path.exists("go"):
                time.sleep(0.01)
            sys.exit(3)
        if line["text"] == "ask" and len(line.get("history", ())) < 3:
            say(type="ask", task=line["id"], text="Which branch?")
        elif line["text"] == "ask":
            say(type="complete", task=line["id"], text="on " + line["history"][-1]["text"])
        else:
            say(type="complete", task=line["id"], text="did " + line["text"])
"""

TEMPLATE = """
[worker]
name = "worker"
[workstation]
command = ["python3", "/opt/agent/agent.py"]
files = ["agent.py"]
"""


@pytest.fixture(scope="module")
def room() -> Iterator[PostRoom]:
    """One post room for all tests here, with a worker for each."""
    with running_room() as room:
        yield room


def spawn(room: PostRoom, nick: str) -> None:
    room.run("spawn", room.template(TEMPLATE, agent=AGENT), "--name", nick)


@contextmanager
def live(room: PostRoom, *words: str) -> Generator[subprocess.Popen[str]]:
    process = room.popen(*words, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)


def line_with(stream: IO[str] | None, wanted: str) -> str:
    """The first line of these that has `wanted` in it."""
    assert stream is not None
    seen = []
    for line in stream:
        seen.append(line)
        if wanted in line:
            return line
    raise AssertionError(f"{wanted!r} is not in {seen}")


@pytest.mark.requirement("task-answer-resumes")
def test_a_script_is_told_the_question_of_a_real_agent_and_how_to_answer_it(room: PostRoom) -> None:
    spawn(room, "asker")

    room.run("delegate", "@asker", "ask", "--wait", status=9)

    assert "@asker asks, and task" in room.stderr
    assert "waits for the answer: Which branch?" in room.stderr
    assert "try: postroom task answer " in room.stderr
    assert "@asker asks: Which branch?" in room.run("status")


@pytest.mark.requirement("task-answer-resumes")
def test_a_stopped_worker_with_a_question_says_where_the_answer_waits_until_it_is_started(
    room: PostRoom,
) -> None:
    spawn(room, "halted")
    room.run("delegate", "@halted", "ask", "--wait", status=9)
    with room.client() as client:
        (task,) = [each["id"] for each in client.tasks(worker="@halted")]
    waits = "@halted is stopped; {} waits for its start: postroom restart halted"
    room.run("stop", "halted")
    asked = f"@halted asks: Which branch? ({waits.format('your answer')})"
    assert asked in room.run("status")

    room.run("task", "answer", task, "main")

    assert waits.format("the answer") in room.stderr
    assert asked not in room.run("status")
    assert waits.format("the answer") in room.run("task", "show", task)
    assert "task is working" in room.run("task", "answer", task, "another", status=5) + room.stderr
    assert "@halted" not in room.run("status", "--running")
    room.run("restart", "halted")
    assert "on main" in room.run("task", "watch", task)


@pytest.mark.requirement("client-stream-resumes", "cli-status-attention")
def test_who_waits_for_a_worker_that_fails_meanwhile_is_told(room: PostRoom) -> None:
    spawn(room, "failing")
    room.run("delegate", "@failing", "fail")
    room.run("delegate", "@failing", "fail")

    workspace = room.state / "workers" / room.worker("failing")["uid"] / "workspace"
    with live(room, "delegate", "@failing", "do it", "--wait") as waiting:
        line_with(waiting.stdout, "accepted")
        (workspace / "go").touch()
        told = line_with(waiting.stdout, "@failing has failed")

    assert told.endswith("; postroom logs failing\n")
    assert "  @failing has failed: " in room.run("status")


@pytest.mark.slow
@pytest.mark.requirement("cli-status-attention")
def test_watch_and_logs_go_on_across_an_end_of_the_post_room(room: PostRoom) -> None:
    spawn(room, "busy")
    with live(room, "watch") as watch, live(room, "logs", "busy", "--follow") as logs:
        line_with(logs.stdout, "indented")
        assert watch.stdout is not None
        while not select.select([watch.stdout], [], [], 1)[
            0
        ]:  # it says nothing when it begins to watch
            room.run("send", "#ready", "now", "--new")
        room.run("delegate", "@busy", "one", "--wait")
        line_with(watch.stdout, "completed: did one")

        room.run("down")
        line_with(watch.stdout, "the post room is away")
        room.up()
        line_with(watch.stdout, "the post room is back")

        line_with(logs.stdout, "indented")
        room.run("delegate", "@busy", "two", "--wait")
        line_with(watch.stdout, "completed: did two")
    (task,) = [t for t in room.json("task", "list", "--all")["tasks"] if t["text"] == "two"]
    assert task["status_text"] == "did two"
    assert task["started_at"] >= task["created_at"]
