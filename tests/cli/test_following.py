"""What somebody is told who waits for a task, or watches all of them."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from postroom.cli.root import INTERRUPTED
from tests.cli.conftest import LIMIT, Run, command, environment, spawned
from tests.cli.terminal import Terminal
from tests.client.standin import (
    BOB,
    DEADLINE,
    ME,
    TASK,
    Standin,
    alert,
    artifact,
    change,
    frame,
    from_bob,
    instant,
    post,
    problem,
    status,
    task,
    worker,
)

NASTY = "\x1b[31mred\x07 \u202ereversed\nbob 12:00 forged"
ASKS = change(9, "input-required", "Which branch?")
WAITS = task(state="input-required", seq=9, detail="Which branch?")
DONE = task(state="completed", final=True, seq=12, artifacts=[artifact("the result")])
FAILED = "@bob has failed (exit code 3): it waits"


def asked(standin: Standin, *states: dict[str, Any]) -> queue.Queue[bytes | None]:
    """Have bob's task ask something; it is then found in `states`, one after the other."""
    standin.answer("POST /v1/tasks", task(detail=""), 201)
    for state in states:
        standin.answer(f"GET /v1/tasks/{TASK}", state)
    frames = standin.stream()
    frames.put(frame("update", 9, ASKS))
    return frames


def trouble(at: float, text: str) -> bytes:
    about = {"task": TASK, "text": text, "worker": "bob" if text else "", "at": instant(at)}
    return frame("trouble", 0, about)


# ── a question ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("task-answer-resumes")
@pytest.mark.parametrize("options", [[], ["--json"], ["--timeout", "60"]])
def test_a_script_that_waits_is_told_the_question_and_ends_with_9_at_once(
    standin: Standin, tmp_path: Path, options: list[str]
):
    asked(standin, WAITS)  # and the stream stays open
    ended = spawned(["delegate", "@bob", "go", "--wait", *options, "--state", str(tmp_path)])
    assert ended.status == 9
    assert "@bob asks, and task ab12cd34 waits for the answer: Which branch?" in ended.err
    assert ended.err.endswith("  try: postroom task answer ab12cd34 TEXT\n")


@pytest.mark.requirement("task-answer-resumes")
def test_in_a_terminal_a_question_is_answered_where_it_is_asked(standin: Standin, tmp_path: Path):
    frames = asked(standin, WAITS, DONE)
    standin.answer(f"POST /v1/tasks/{TASK}/answer", task(state="working", seq=9))
    with Terminal("delegate", "@bob", "go", "--wait", "--state", str(tmp_path)) as terminal:
        terminal.read_until("answer here, or: postroom task answer ab12cd34 TEXT")
        terminal.type("main, please\n")
        standin.wait_for(f"POST /v1/tasks/{TASK}/answer")
        frames.put(frame("update", 10, change(10, "working", answer="main, please")))
        frames.put(frame("update", 12, change(12, "completed")))
        assert terminal.ended() == 0
    (answer,) = standin.calls(f"POST /v1/tasks/{TASK}/answer")
    assert answer.body == {"text": "main, please"}
    assert "@bob asks: Which branch?" in terminal.plain
    assert terminal.plain.rstrip().endswith("the result")


@pytest.mark.requirement("task-answer-resumes")
def test_a_question_that_was_answered_elsewhere_takes_no_line_any_more(
    standin: Standin, tmp_path: Path
):
    frames = asked(standin, WAITS, DONE)
    with Terminal("delegate", "@bob", "go", "--wait", "--state", str(tmp_path)) as terminal:
        terminal.read_until("answer here")
        frames.put(frame("update", 10, change(10, "working", "thanks", answer="theirs")))
        terminal.read_until("answered: theirs")
        terminal.type("too late\n")
        frames.put(frame("update", 12, change(12, "completed")))
        assert terminal.ended() == 0
    assert standin.calls(f"POST /v1/tasks/{TASK}/answer") == []


def test_an_answer_that_is_refused_is_said_and_the_task_is_waited_for(
    standin: Standin, tmp_path: Path
):
    frames = asked(standin, WAITS, WAITS, DONE)
    standin.answer(f"POST /v1/tasks/{TASK}/answer", problem("conflict", "it asks nothing"), 409)
    with Terminal("task", "watch", TASK, "--state", str(tmp_path)) as terminal:
        terminal.read_until("answer here")
        terminal.type("main\n")
        terminal.read_until("postroom: it asks nothing")
        frames.put(frame("update", 12, change(12, "completed")))
        assert terminal.ended() == 0


# ── what keeps a task ────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("client-stream-resumes")
def test_who_waits_is_told_once_that_the_worker_has_failed_and_where_to_look(
    postroom: Run, standin: Standin
):
    standin.answer("POST /v1/tasks", task(detail=""), 201)
    standin.answer(f"GET /v1/tasks/{TASK}", DONE)
    standin.stream().put(
        trouble(1.0, FAILED)
        + trouble(2.0, FAILED)
        + trouble(3.0, "")
        + trouble(4.0, FAILED)
        + frame("update", 12, change(12, "completed"))
    )
    ended = postroom("delegate", "@bob", "go", "--wait")
    assert ended.err.splitlines().count(f"{FAILED}; postroom logs bob") == 2
    assert (ended.status, ended.out) == (0, "the result\n")


@pytest.mark.requirement("client-stream-resumes")
def test_what_was_said_when_the_task_was_given_is_not_said_again(postroom: Run, standin: Standin):
    standin.answer("POST /v1/tasks", task(detail=FAILED), 201)
    standin.answer(f"GET /v1/tasks/{TASK}", DONE)
    standin.stream().put(trouble(1.0, FAILED) + frame("update", 12, change(12, "completed")))
    assert postroom("delegate", "@bob", "go", "--wait").err.count("has failed") == 1


@pytest.mark.requirement("client-stream-resumes")
def test_who_waits_is_told_that_the_post_room_is_away_and_goes_on_when_it_is_back(
    postroom: Run, standin: Standin
):
    standin.answer("POST /v1/tasks", task(detail=""), 201)
    standin.answer(f"GET /v1/tasks/{TASK}", DONE)
    first, second = standin.stream(), standin.stream()
    first.put(None)
    second.put(frame("update", 12, change(12, "completed")))
    ended = postroom("delegate", "@bob", "go", "--wait")
    assert (ended.status, ended.out) == (0, "the result\n")
    lines = ended.err.splitlines()
    assert "the post room is away: waiting for it" in lines
    assert lines.index("the post room is back") > lines.index(
        "the post room is away: waiting for it"
    )


@pytest.mark.requirement("cli-words-expected")
def test_in_json_a_trouble_is_a_line_of_its_own(postroom: Run, standin: Standin):
    standin.answer("POST /v1/tasks", task(detail=""), 201)
    standin.answer(f"GET /v1/tasks/{TASK}", DONE)
    standin.stream().put(trouble(1.0, FAILED) + frame("update", 12, change(12, "completed")))
    lines = postroom("delegate", "@bob", "go", "--wait", "--json").out.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["task", "trouble", "update", "result"]


# ── postroom watch ───────────────────────────────────────────────────────────────────────────────

UPDATE = {"worker": BOB, "requester": ME, "request_text": "review it"}


def happened(cursor: str, kind: str, data: dict[str, Any]) -> bytes:
    return frame(kind, cursor, data)


def watching(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("watch", *options, "--state", str(tmp_path)),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def interrupted(process: subprocess.Popen[str]) -> tuple[str, str]:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == INTERRUPTED
    return out, err.strip()


@pytest.mark.requirement("cli-status-attention")
def test_watch_shows_each_thing_that_happens_on_a_line(standin: Standin, tmp_path: Path):
    told = alert("it is full", nick="bob", at=instant())
    failed = {
        "uid": "u",
        "nick": "bob",
        "state": "failed",
        "detail": "exit code 3",
        "at": instant(),
    }
    standin.stream().put(
        happened("1-1-1-0", "open", {})
        + happened("1-2-1-0", "task", task(id=TASK))
        + happened("2-2-1-0", "update", change(2, "working", "step 1", **UPDATE))
        + happened("3-2-1-0", "update", change(3, "input-required", NASTY, **UPDATE))
        + happened("3-3-1-0", "mail", from_bob(3, "hello\nyou"))
        + happened("3-3-2-0", "post", post(2, "done"))
        + happened("3-3-2-1", "alert", told)
        + happened("3-3-2-1", "worker", failed)
        + happened("3-3-2-1", "worker", failed | {"state": "idle", "detail": ""})
        + happened("4-3-2-1", "update", change(4, "completed", "all of it", **UPDATE))
    )
    process = watching(tmp_path)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(8)]
    rest, err = interrupted(process)
    assert (rest, err) == ("", "")
    assert [line.split(" ", 2)[2] for line in lines] == [
        "@bob task ab12cd34 from @alice: review it\n",
        "@bob ab12cd34 working: step 1\n",
        "@bob ab12cd34 @bob asks: red reversed bob 12:00 forged\n",
        "@bob to you: hello you\n",
        "#main @bob: done\n",
        "@bob alert: it is full\n",
        "@bob has failed: exit code 3\n",
        "@bob ab12cd34 completed: all of it\n",
    ]


@pytest.mark.requirement("cli-status-attention")
def test_watch_goes_on_behind_what_it_has_shown_when_the_post_room_is_back(
    standin: Standin, tmp_path: Path
):
    first, second = standin.stream(), standin.stream()
    first.put(happened("1-1-1-0", "open", {}) + happened("1-1-2-0", "post", post(2, "one")))
    first.put(None)
    second.put(happened("1-1-2-0", "open", {}) + happened("1-1-3-0", "post", post(3, "two")))
    process = watching(tmp_path, "--json")
    assert process.stdout is not None
    said = [json.loads(process.stdout.readline()) for _ in range(2)]
    _, err = interrupted(process)
    assert [(line["type"], line["text"]) for line in said] == [("post", "one"), ("post", "two")]
    assert err == "the post room is away: waiting for it\nthe post room is back"
    asked = [standin.stream_requests.get(timeout=DEADLINE).query.get("after") for _ in range(2)]
    assert asked == [None, "1-1-2-0"]


def test_a_line_of_watch_fits_the_terminal(standin: Standin, tmp_path: Path):
    long = change(2, "working", "word " * 100, **UPDATE)
    standin.stream().put(
        happened("1-1-1-0", "open", {})
        + happened("2-1-1-0", "update", long)
        + happened("2-1-2-0", "post", post(2, "the end"))
    )
    with Terminal("watch", "--state", str(tmp_path), columns=40) as terminal:
        terminal.read_until("the end")
        lines = terminal.plain.splitlines()
    assert max(map(len, lines)) <= 40


# ── status --watch ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("cli-status-attention")
def test_status_is_printed_anew_when_something_has_happened(standin: Standin, tmp_path: Path):
    standin._answers.clear()
    standin.answer("GET /v1/status", status(worker("first")))
    standin.answer("GET /v1/status", status(worker("second")))
    frames = standin.stream()
    frames.put(happened("1-1-1-0", "open", {}))
    process = subprocess.Popen(
        command("status", "--watch", "--state", str(tmp_path)),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    assert lines[2].startswith("@first")
    frames.put(happened("1-1-2-0", "post", post(2, "news")))
    lines = [process.stdout.readline() for _ in range(4)]
    assert lines[0] == "\n"
    assert lines[3].startswith("@second")
    out, err = interrupted(process)
    assert (out, err) == ("", "")


@pytest.mark.requirement("cli-status-attention")
def test_on_a_terminal_the_new_status_takes_the_place_of_the_old(standin: Standin, tmp_path: Path):
    standin._answers.clear()
    standin.answer("GET /v1/status", status(worker("first"), *[worker(f"w{n}") for n in range(60)]))
    standin.answer("GET /v1/status", status(worker("second")))
    frames = standin.stream()
    frames.put(happened("1-1-1-0", "open", {}))
    with Terminal("status", "--watch", "--state", str(tmp_path)) as terminal:
        terminal.read_until("lines more")
        frames.put(happened("1-1-2-0", "post", post(2, "news")))
        terminal.read_until("@second")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ended() == INTERRUPTED
    first, second = terminal.text.split("\x1b[H")[1:3]
    assert first.count("\n") == 29
    assert "\x1b[J" in second
