"""What the commands of tasks ask for, print, and end with."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from postroom.cli.root import INTERRUPTED
from postroom_a2a.times import format_time
from tests.cli.conftest import LIMIT, Ended, Run, command, environment, spawned
from tests.cli.terminal import Terminal
from tests.client.standin import (
    BOB,
    DEADLINE,
    TASK,
    Standin,
    artifact,
    change,
    frame,
    piece,
    problem,
    task,
)

NASTY = "\x1b[31mred\x07 \u202ereversed\nbob 12:00 forged"
HARMLESS = "red reversed\nbob 12:00 forged"
NO_MESSAGES = {"messages": []}
LATER = task(state="working", seq=9, attempt=1, detail="")


def played(standin: Standin, ended: dict[str, Any], *events: dict[str, Any]) -> None:
    """Have bob's task go through `events` and stand as `ended` when it is asked for after them."""
    standin.answer("POST /v1/tasks", task(), 201)
    standin.answer(f"GET /v1/tasks/{TASK}", ended)
    standin.stream().put(b"".join(frame("update", event["seq"], event) for event in events))


def after_clock(text: str) -> list[str]:
    """Lines without the time that each begins with, but for those that are set in."""
    return [
        line if line.startswith(" ") or line[:2] != "20" else line.split(" ", 2)[2]
        for line in text.splitlines()
    ]


# ── delegate ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("task-request-runs-once")
def test_delegate_prints_the_id_and_says_that_the_agent_is_offline(postroom: Run, standin: Standin):
    standin.answer("POST /v1/tasks", task(), 201)
    ended = postroom("delegate", "@bob", "review", "it", "--key", "k")
    assert (ended.status, ended.out) == (0, f"{TASK} accepted\n")
    assert ended.err == "@bob is offline: it waits; postroom task watch ab12cd34\n"
    assert standin.requests[-1].body == {"to": "@bob", "text": "review it", "key": "k"}


@pytest.mark.requirement("task-request-runs-once")
@pytest.mark.parametrize(
    "state, said", [("submitted", "accepted"), ("working", "working"), ("completed", "completed")]
)
def test_delegate_with_a_key_that_was_used_says_how_far_that_task_is(
    postroom: Run, standin: Standin, state: str, said: str
):
    standin.answer("POST /v1/tasks", task(state=state, seq=7, detail=""), 201)
    assert postroom("delegate", "@bob", "go", "--key", "k").out == f"{TASK} {said}\n"


@pytest.mark.requirement("task-request-runs-once")
def test_delegate_with_a_skill_says_who_got_the_task(postroom: Run, standin: Standin):
    standin.answer("POST /v1/tasks", task(detail=""), 201)
    ended = postroom("delegate", "--skill", "review", "@bob wrote it:", "look", "--key", "k")
    assert ended.err == "given to @bob\npostroom task watch ab12cd34\n"
    body = {"skill": "review", "text": "@bob wrote it: look", "key": "k"}
    assert standin.requests[-1].body == body
    postroom("delegate", "--skill", "review", "@bob", "look", "--key", "k")
    assert standin.requests[-1].body == {
        "skill": "review",
        "to": "@bob",
        "text": "look",
        "key": "k",
    }


@pytest.mark.parametrize("words", [["@bob"], ["@bob", "-"], ["--skill", "s"]])
def test_delegate_takes_the_task_from_a_pipe(standin: Standin, tmp_path: Path, words: list[str]):
    standin.answer("POST /v1/tasks", task(), 201)
    ended = spawned(["delegate", *words, "--state", str(tmp_path)], stdin="line 1\nline ü\n")
    assert ended.status == 0
    assert standin.requests[-1].body["text"] == "line 1\nline ü"


def test_delegate_in_json_is_what_the_server_said(postroom: Run, standin: Standin):
    standin.answer("POST /v1/tasks", task(), 201)
    ended = postroom("delegate", "@bob", "go", "--json")
    assert (json.loads(ended.out), ended.err) == (task(), "")


def test_a_skill_that_nobody_has_ends_with_4(postroom: Run, standin: Standin):
    nobody = problem("not-found", "no agent has the skill 'fly'", "postroom agents lists skills")
    standin.answer("POST /v1/tasks", nobody, 404)
    ended = postroom("delegate", "--skill", "fly", "go")
    assert ended.status == 4
    assert ended.err.startswith("postroom: no agent has the skill 'fly'\n")


@pytest.mark.requirement("bus-ack-means-disk")
@pytest.mark.parametrize("words", [["delegate", "@bob", "go"], ["send", "@bob", "hi"]])
def test_a_request_that_was_read_by_a_post_room_that_died_ends_with_9_and_names_its_key(
    standin: Standin, tmp_path: Path, words: list[str]
):
    died = threading.Event()

    def read_and_die() -> None:
        connection, _ = dying.accept()
        connection.recv(65536)
        dying.close()
        connection.close()
        died.set()

    with socket.create_server(("127.0.0.1", 0)) as dying:
        standin.announce(tmp_path, url=f"http://127.0.0.1:{dying.getsockname()[1]}")
        threading.Thread(target=read_and_die, daemon=True).start()
        ended = spawned([*words, "--key", "k7", "--state", str(tmp_path)])
        assert died.wait(LIMIT)
    assert (ended.status, ended.out) == (9, "")
    assert "whether it was done is not known" in ended.err
    assert ended.err.endswith("  try: the same again with --key k7, which never does it twice\n")


# ── waiting for the end ──────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("cli-send-waits-answered")
def test_waiting_shows_the_progress_beside_and_the_result_alone_on_the_output(
    postroom: Run, standin: Standin
):
    result = task(
        state="completed",
        final=True,
        seq=20,
        status_text="found two",
        artifacts=[artifact("one\ntwo\n")],
    )
    played(
        standin,
        result,
        change(5, "submitted", kind="task", attempt=0),
        change(7, "working"),
        change(8, "working", "reading\nthe files"),
        piece(9, "one\n"),
        piece(10, "two\n", append=True),
        change(11, "working", "the agent was lost", attempt=2),
        change(12, "working", "again", attempt=2),
        change(13, "input-required", "Which branch?", attempt=2),
        change(14, "working", attempt=2),
        change(20, "completed", "found two", attempt=2),
    )
    ended = postroom("delegate", "@bob", "go", "--wait")
    assert (ended.status, ended.out) == (0, "one\ntwo\n")
    assert after_clock(ended.err) == [
        f"{TASK} accepted",
        "@bob is offline: it waits",
        "submitted, @bob has taken it",
        "working",
        "working: reading",
        "    | the files",
        "artifact report: one",
        "artifact report (more): two",
        "attempt 2: the agent was lost",
        "working: again",
        "@bob asks: Which branch?",
        "working",
        "completed: found two",
    ]


@pytest.mark.requirement("cli-errors-one-line")
@pytest.mark.parametrize(
    "state, code", [("completed", 0), ("failed", 11), ("canceled", 12), ("rejected", 13)]
)
def test_the_exit_status_tells_how_a_task_ended(
    postroom: Run, standin: Standin, state: str, code: int
):
    said = task(state=state, final=True, seq=9, status_text="because\nof this")
    played(standin, said, change(9, state, "because\nof this"))
    standin.answer("GET /v1/tasks/ab12cd34", said)
    ended = postroom("task", "watch", "ab12cd34")
    assert ended.status == code
    if code:
        assert (ended.out, ended.err) == ("", f"{state}: because\n    | of this\n")
    else:
        assert (ended.out, ended.err) == ("because\nof this\n", "completed\n")


def test_each_of_several_results_is_named_beside_the_output(postroom: Run, standin: Standin):
    results = [artifact("one", "first"), artifact("two", "")]
    played(
        standin,
        task(state="completed", final=True, seq=9, artifacts=results, status_text="one"),
        change(9, "completed"),
    )
    ended = postroom("delegate", "@bob", "go", "--wait")
    assert ended.out == "one\ntwo\n"
    assert ended.err.splitlines()[-3:] == [
        "completed",
        "artifact first (1 of 2):",
        "artifact a- (2 of 2):",
    ]


@pytest.mark.requirement("cli-errors-one-line")
def test_a_late_end_ends_with_9_and_says_that_the_task_goes_on(postroom: Run, standin: Standin):
    played(standin, LATER, change(9, "working", "busy"))
    ended = postroom("delegate", "@bob", "go", "--wait", "--timeout", "0.3")
    assert (ended.status, ended.out) == (9, "")
    assert "no final state within 0.3 s: task ab12cd34 is working and goes on" in ended.err
    assert ended.err.endswith("  try: postroom task watch ab12cd34\n")


def test_a_question_that_nobody_answered_in_time_is_the_remedy(postroom: Run, standin: Standin):
    played(standin, LATER | {"state": "input-required"})
    ended = postroom("delegate", "@bob", "go", "--wait", "--timeout", "0")
    assert ended.status == 9
    assert ended.err.endswith("  try: postroom task answer ab12cd34 TEXT\n")


@pytest.mark.requirement("cli-words-expected")
def test_in_json_each_change_is_a_line_between_the_task_at_first_and_at_last(
    postroom: Run, standin: Standin
):
    last = task(state="completed", final=True, seq=9, artifacts=[artifact(NASTY)])
    events = [change(8, "working", NASTY), change(9, "completed")]
    played(standin, last, *events)
    ended = postroom("delegate", "@bob", "go", "--wait", "--json")
    assert [json.loads(line) for line in ended.out.splitlines()] == [
        {"type": "task", **task()},
        *({"type": "update", **event} for event in events),
        {"type": "result", **last},
    ]
    assert ended.out.isascii()
    assert (ended.status, ended.err) == (0, "")


@pytest.mark.requirement("text-controls-stripped")
def test_what_an_agent_says_cannot_act_on_the_terminal_or_forge_a_line(
    postroom: Run, standin: Standin
):
    hostile = task(
        state="completed",
        final=True,
        seq=12,
        status_text=NASTY + "!",
        artifacts=[artifact(NASTY, NASTY), artifact(NASTY, NASTY)],
    )
    played(
        standin,
        hostile,
        change(8, "working", NASTY),
        piece(9, NASTY, name=NASTY),
        change(10, "input-required", NASTY),
        change(12, "completed", NASTY),
    )
    ended = postroom("delegate", "@bob", "go", "--wait")
    assert ended.out == f"{HARMLESS}\n{HARMLESS}\n"
    for line in ended.err.splitlines():
        assert not line.startswith("bob 12:00")
    assert not set(ended.err) & {"\x1b", "\x07", "\u202e"}


def test_no_colour_is_written_into_a_pipe(standin: Standin, tmp_path: Path):
    played(standin, task(state="failed", final=True, seq=9), change(9, "failed"))
    ended = spawned(["delegate", "@bob", "go", "--wait", "--state", str(tmp_path)])
    assert ended.status == 11
    assert "\x1b" not in ended.out + ended.err


@pytest.mark.requirement("cli-errors-one-line")
def test_ctrl_c_ends_the_watching_with_130_and_says_that_the_task_goes_on(
    standin: Standin, tmp_path: Path
):
    standin.answer("GET /v1/tasks/ab12cd34", LATER)
    standin.stream()
    process = subprocess.Popen(
        command("task", "watch", "ab12cd34", "--state", str(tmp_path)),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    standin.stream_requests.get(timeout=DEADLINE)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out) == (INTERRUPTED, "")
    assert err == "\nthe task goes on: postroom task watch ab12cd34\n"


# ── list, show ───────────────────────────────────────────────────────────────────────────────────


def test_open_tasks_are_listed_newest_first_in_one_line_each(postroom: Run, standin: Standin):
    asks = task(id="cd" * 16, state="input-required", seq=9, text=NASTY, detail="Which\x1b?")
    standin.answer("GET /v1/tasks", {"tasks": [asks, task()]})
    head, first, second = postroom("task", "list").out.splitlines()
    assert head.split() == ["ID", "STATE", "WORKER", "FROM", "TIME", "TASK", "LAST"]
    assert first.split()[:4] == ["cdcdcdcd", "input-required", "@bob", "@alice"]
    assert first.endswith("red reversed bob 12:00 forged  Which?")
    assert second.split()[:2] == ["ab12cd34", "submitted"]
    assert second.endswith("review it" + " " * 22 + "@bob is offline: it waits")
    assert standin.requests[-1].query == {"open": "1", "limit": "100"}


@pytest.mark.requirement("cli-status-attention")
def test_a_list_of_tasks_says_how_far_each_is_and_for_how_long(postroom: Run, standin: Standin):
    running = task(
        state="working",
        seq=9,
        detail="",
        status_text="step 8 of 20",
        started_at=format_time(time.time() - 130),
    )
    done = task(
        state="completed",
        final=True,
        started_at=format_time(1000.0),
        updated_at=format_time(1061.0),
        detail="done",
    )
    standin.answer("GET /v1/tasks", {"tasks": [running, done]})
    _, first, second = postroom("task", "list").out.splitlines()
    assert first.endswith("2 min  review it  step 8 of 20")
    assert second.endswith("1 min  review it  done")


@pytest.mark.requirement("cli-status-attention")
def test_a_list_of_tasks_fits_the_terminal_and_is_whole_in_a_pipe(
    postroom: Run, standin: Standin, tmp_path: Path
):
    long = "review " + "all of it " * 20
    many = task(worker=BOB | {"nick": "n" * 40}, text=long, detail=long)
    standin.answer("GET /v1/tasks", {"tasks": [many] * 3})
    assert postroom("task", "list").out.count(long.strip()) == 6
    with Terminal("task", "list", "--state", str(tmp_path), columns=80) as terminal:
        assert terminal.ended() == 0
    lines = terminal.plain.splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    "options, query",
    [
        (["--all"], {"limit": "100"}),
        (["--in", "failed", "--limit", "3"], {"state": "failed", "limit": "3"}),
        (["--worker", "@bob"], {"open": "1", "worker": "@bob", "limit": "100"}),
    ],
)
def test_a_list_of_tasks_can_be_narrowed(
    postroom: Run, standin: Standin, options: list[str], query: dict[str, str]
):
    standin.answer("GET /v1/tasks", {"tasks": []})
    assert "no " in postroom("task", "list", *options).out
    assert standin.requests[-1].query == query
    assert json.loads(postroom("task", "list", *options, "--json").out) == {"tasks": []}


def shown(postroom: Run, *options: str) -> Ended:
    return postroom("task", "show", "ab12cd34", *options)


def test_a_task_is_shown_with_its_request_every_attempt_and_its_results(
    postroom: Run, standin: Standin
):
    found = task(
        state="completed", final=True, seq=9, attempt=2, detail="done", artifacts=[artifact(NASTY)]
    )
    events = [
        change(5, "submitted", kind="task", attempt=0),
        change(6, "working"),
        change(8, "working", NASTY, attempt=2),
        change(9, "completed", "done", attempt=2),
    ]
    standin.answer("GET /v1/tasks/ab12cd34", found)
    standin.answer(f"GET /v1/tasks/{TASK}/events", {"events": events})
    standin.answer(f"GET /v1/tasks/{TASK}/messages", NO_MESSAGES)
    head, parties, given, *rest = shown(postroom).out.splitlines()
    assert head == f"task {TASK} completed"
    assert parties == "@alice to @bob, attempt 2"
    assert given.endswith(", message m1")
    assert after_clock("\n".join(rest)) == [
        "    | review it",
        "submitted, @bob has taken it",
        "working",
        "attempt 2: red reversed",
        "    | bob 12:00 forged",
        "completed: done",
        "artifact report:",
        "    | red reversed",
        "    | bob 12:00 forged",
    ]
    assert json.loads(shown(postroom, "--json").out) == found | {"events": events} | NO_MESSAGES


def test_a_task_is_shown_with_its_door_its_retries_and_its_agents_messages(
    postroom: Run, standin: Standin
):
    at = format_time(time.time())
    said = {
        "id": "ab" * 16,
        "at": at,
        "from": BOB,
        "to": BOB | {"nick": "alice"},
        "parts": [],
        "state": "seen",
    }
    messages = [
        said | {"kind": "request", "text": "review it"},
        said | {"kind": "message", "text": NASTY},
        said | {"kind": "task", "text": "count the words"},
        said | {"kind": "news", "text": "half", "to": None},
    ]
    found = task(state="failed", final=True, seq=9, door="a2a+rest", retry_of="cd" * 16)
    standin.answer("GET /v1/tasks/ab12cd34", found | {"retried_as": ["ef" * 16]})
    standin.answer(f"GET /v1/tasks/{TASK}/events", {"events": []})
    standin.answer(f"GET /v1/tasks/{TASK}/messages", {"messages": messages})
    lines = shown(postroom).out.splitlines()
    assert " over a2a+rest, message m1" in lines[2]
    assert lines[3:5] == ["retry of cdcdcdcd", "retried as efefefef"]
    assert "messages of its agent in its course:" in lines
    assert any("sent to @alice, abababab, seen: red reversed" in line for line in lines)
    assert any("gave a task to @alice, abababab, seen: count the words" in line for line in lines)
    assert not any("half" in line for line in lines)


def test_tasks_are_listed_by_the_door_by_which_they_were_asked_for(postroom: Run, standin: Standin):
    standin.answer("GET /v1/tasks", {"tasks": []})
    assert postroom("task", "list", "--door", "a2a+jsonrpc").status == 0
    assert standin.requests[-1].query["door"] == "a2a+jsonrpc"
    assert postroom("task", "list", "--door", "window").status == 2


def test_a_task_is_asked_for_again(postroom: Run, standin: Standin):
    new = task(retry_of=TASK, detail="@bob is offline: it waits")
    standin.answer("POST /v1/tasks/ab12cd34/retry", new, 201)
    ended = postroom("task", "retry", "ab12cd34", "--force")
    assert (ended.status, ended.out) == (0, f"{TASK} accepted\n")
    assert ended.err == "@bob is offline: it waits\n"
    assert standin.requests[-1].body == {"force": True}
    refused = problem("conflict", "the task is completed")
    standin.answer("POST /v1/tasks/abcd/retry", refused, 409)
    assert postroom("task", "retry", "abcd").status == 5


def test_a_task_that_asks_is_shown_with_how_to_answer(postroom: Run, standin: Standin):
    standin.answer("GET /v1/tasks/ab12cd34", LATER | {"state": "input-required"})
    standin.answer(f"GET /v1/tasks/{TASK}/events", {"events": []})
    standin.answer(f"GET /v1/tasks/{TASK}/messages", NO_MESSAGES)
    assert shown(postroom).out.splitlines()[-1] == ("answer it: postroom task answer ab12cd34 TEXT")


def test_a_long_history_is_read_page_by_page(postroom: Run, standin: Standin):
    pages = [[change(n, "working") for n in range(1, 201)], [change(201, "working")]]
    standin.answer("GET /v1/tasks/ab12cd34", LATER)
    for page in pages:
        standin.answer(f"GET /v1/tasks/{TASK}/events", {"events": page})
    standin.answer(f"GET /v1/tasks/{TASK}/messages", NO_MESSAGES)
    assert len(json.loads(shown(postroom, "--json").out)["events"]) == 201
    asked = [r.query["after"] for r in standin.calls(f"GET /v1/tasks/{TASK}/events")]
    assert asked == ["0", "200"]


def test_a_result_that_nobody_reads_changes_nothing_about_how_it_ended(
    standin: Standin, tmp_path: Path
):
    failed = task(state="failed", final=True, seq=8, artifacts=[artifact("half")])
    played(standin, failed, change(8, "failed", final=True))
    words = command("task", "watch", TASK, "--state", str(tmp_path))
    done = subprocess.run(
        ["bash", "-c", '"$@" >&-', "bash", *words],
        env=environment(),
        stderr=subprocess.PIPE,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (11, b"failed\n")


# ── cancel, answer ───────────────────────────────────────────────────────────────────────────────


def test_cancel_says_how_the_task_ended(postroom: Run, standin: Standin):
    canceled = task(state="canceled", final=True, seq=9)
    standin.answer("POST /v1/tasks/ab12cd34/cancel", canceled)
    ended = postroom("task", "cancel", "ab12cd34", "--reason", "no more")
    assert (ended.status, ended.out) == (0, "ab12cd34 canceled\n")
    assert standin.requests[-1].body["reason"] == "no more"
    assert json.loads(postroom("task", "cancel", "ab12cd34", "--json").out) == canceled


def test_cancel_says_that_the_agent_had_to_be_ended(postroom: Run, standin: Standin):
    text = "the agent did not stop within 5 s and was ended"
    canceled = task(state="canceled", final=True, seq=9, status_text=text)
    standin.answer("POST /v1/tasks/ab12cd34/cancel", canceled)
    ended = postroom("task", "cancel", "ab12cd34")
    assert (ended.out, ended.err) == ("ab12cd34 canceled\n", f"{text}\n")


def test_a_cancel_that_the_agent_has_not_confirmed_ends_with_9(postroom: Run, standin: Standin):
    standin.answer("POST /v1/tasks/ab12cd34/cancel", LATER | {"timed_out": True})
    ended = postroom("task", "cancel", "ab12cd34")
    assert ended.status == 9
    assert "@bob was asked to stop and has not yet: task ab12cd34 is working" in ended.err


def test_a_task_that_has_ended_cannot_be_canceled(postroom: Run, standin: Standin):
    over = problem("conflict", "task ab12cd34 is completed already")
    standin.answer("POST /v1/tasks/ab12cd34/cancel", over, 409)
    assert postroom("task", "cancel", "ab12cd34").status == 5


@pytest.mark.requirement("task-answer-resumes")
def test_an_answer_is_given_and_what_it_waits_for_is_said(postroom: Run, standin: Standin):
    standin.answer("POST /v1/tasks/ab12cd34/answer", task(seq=9, detail="@bob is stopped"))
    ended = postroom("task", "answer", "ab12cd34", "the", "main", "one")
    assert (ended.status, ended.out) == (0, "ab12cd34 answered\n")
    assert ended.err == "@bob is stopped\n"
    assert standin.requests[-1].body == {"text": "the main one"}


@pytest.mark.requirement("task-answer-resumes")
@pytest.mark.parametrize("words", [[], ["-"]])
def test_an_answer_can_come_from_a_pipe(standin: Standin, tmp_path: Path, words: list[str]):
    standin.answer("POST /v1/tasks/ab12cd34/answer", task())
    arguments = ["task", "answer", "ab12cd34", *words, "--state", str(tmp_path)]
    assert spawned(arguments, stdin="yes\n").status == 0
    assert standin.requests[-1].body == {"text": "yes"}


def test_why_a_push_failed_is_said_whole_and_harmless(postroom: Run, standin: Standin):
    reason = "the answer of hooks.example is not HTTP: " + NASTY.replace("\n", " ")
    push: dict[str, Any] = {
        "id": "push_" + "ab" * 16,
        "config": "c",
        "url": "https://hooks.example/x",
        "seq": 1,
    }
    push |= {"what": "working", "state": "pending", "attempts": 1, "status": 0, "reason": reason}
    push |= {"tried_at": None, "next_at": None}
    standin.answer(f"GET /v1/tasks/{TASK}/pushes", {"pushes": [push], "next": None})
    lines = postroom("task", "pushes", TASK).out.splitlines()
    assert lines[0].split() == ["PUSH", "CHANGE", "STATE", "TRIES", "NEXT", "TO"]
    why = "the answer of hooks.example is not HTTP: red reversed bob 12:00 forged"
    assert lines[2] == f"abababab: {why}"
