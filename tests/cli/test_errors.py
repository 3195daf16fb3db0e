"""How a run ends when something is wrong."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from postroom import errors, settings
from postroom.cli.root import EPILOG, INTERRUPTED, PIPE_CLOSED, run
from postroom.protocol import tasks
from postroom_a2a.task_state import TERMINAL, TaskState
from tests.cli.conftest import LIMIT, Run, command, environment, spawned
from tests.client.standin import DEADLINE, Standin, mail, problem, status, worker

KINDS = sorted(errors.by_code(errors.PostroomError).values(), key=lambda kind: kind.code)


@pytest.mark.requirement("cli-errors-one-line")
def test_an_error_is_one_line_with_its_remedy_and_has_its_exit_status(
    postroom: Run, standin: Standin
):
    for kind in KINDS:
        if kind in (errors.PinRequired, errors.PinWrong):
            continue  # the command asks for the PIN then, and says how to give it without a terminal
        error = kind("it went\nwrong", remedy="turn it\noff")
        nick = kind.code
        standin.answer(
            f"POST /v1/workers/{nick}/restart", errors.problem(error), errors.http_status(error)
        )
        ended = postroom("restart", nick, "--same")
        assert ended.err == "postroom: it went wrong\n  try: turn it off\n"
        assert ended.out == ""
        assert ended.status == errors.exit_code(error), kind


def test_each_exit_status_is_documented():
    numbers = {int(word) for word in EPILOG.split() if word.isdigit()}
    outcomes = tasks.EXIT_CODES.values()
    assert numbers == {0, INTERRUPTED, *errors.EXIT_CODES.values(), *outcomes}


def test_a_task_that_did_not_complete_has_an_exit_status_of_its_own():
    outcomes = {state: code for state, code in tasks.EXIT_CODES.items() if code}
    assert set(tasks.EXIT_CODES) == TERMINAL
    assert set(outcomes) == TERMINAL - {TaskState.COMPLETED}
    others = {INTERRUPTED, PIPE_CLOSED, *errors.EXIT_CODES.values()}
    assert not others & set(outcomes.values())
    assert len(set(outcomes.values())) == len(outcomes)


WRONG = [
    ("nonsense",),
    ("send",),
    ("send", "@bob", "hi", "--wait", "never"),
    ("send", "#main", "hi", "--wait", "seen"),
    ("send", "@bob", "hi", "--no-reply", "--wait", "answered"),
    ("send", "@bob", " "),
    ("chat", "#main", "--wait", "seen"),
    ("up", "--port", "70000"),
    ("status", "--nonsense"),
    ("worker",),
    ("delegate",),
    ("delegate", "@bob", " "),
    ("delegate", "@bob", "hi", "--timeout", "3"),
    ("task", "list", "--in", "asleep"),
    ("task", "answer", "ab12cd34", " "),
]


def test_wrong_usage_ends_with_2(postroom: Run, standin: Standin):
    for arguments in WRONG:
        ended = postroom(*arguments)
        assert ended.status == 2, arguments
        assert "Error: " in ended.err
    assert not standin.calls("POST /v1/messages")


COMMANDS = [
    ("status",),
    ("status", "--json"),
    ("down",),
    ("inbox",),
    ("send", "@bob", "hi"),
    ("chat", "@bob"),
    ("stop", "bob"),
    ("restart", "bob"),
    ("deadletters", "list"),
    ("logs", "bob"),
    ("delegate", "@bob", "hi"),
    ("task", "list"),
    ("task", "watch", "ab12cd34"),
]


def test_without_a_post_room_every_command_says_so_and_ends_with_3(postroom: Run, tmp_path: Path):
    for arguments in COMMANDS:
        ended = postroom(*arguments)
        assert ended.status == 3, arguments
        assert ended.err == (
            f"postroom: no post room runs on {tmp_path}\n  try: postroom --state {tmp_path} up\n"
        )


@pytest.mark.requirement("cli-errors-one-line")
def test_without_a_home_the_state_folder_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    def homeless(_: str) -> Path:
        raise RuntimeError  # what platformdirs raises for a user without an entry

    monkeypatch.delenv("POSTROOM_STATE", raising=False)
    monkeypatch.setattr(settings, "user_state_path", homeless)
    assert run(["status"]) == 10
    said = "there is no home folder for the state\n  try: set HOME, or choose with --state DIR\n"
    assert capfd.readouterr().err == f"postroom: {said}"


def test_a_command_with_a_slip_of_the_finger_is_suggested(postroom: Run):
    ended = postroom("sattus")
    assert ended.status == 2
    assert "Did you mean 'status'?" in ended.err


def test_the_usual_state_folder_need_not_be_named(tmp_path: Path):
    ended = spawned(["status"], env=environment(POSTROOM_STATE=str(tmp_path)))
    assert ended.err.endswith("\n  try: postroom up\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("stop", "../../v1/shutdown"),
        ("task", "show", "../../v1/shutdown"),
        ("task", "watch", "ab1"),
        ("task", "cancel", "AB12CD34"),
    ],
)
def test_a_malformed_name_never_reaches_the_server(
    postroom: Run, standin: Standin, arguments: tuple[str, ...]
):
    assert postroom(*arguments).status == 2
    assert standin.requests == []


def test_the_state_folder_can_be_named_before_after_and_by_the_environment(
    standin: Standin, tmp_path: Path
):
    there, elsewhere = str(tmp_path), str(tmp_path / "no")
    for arguments, variable in (
        (["--state", there, "status"], elsewhere),
        (["--state", elsewhere, "status", "--state", there], elsewhere),
        (["status"], there),
    ):
        ended = spawned(arguments, env=environment(POSTROOM_STATE=variable))
        assert (ended.status, ended.err) == (0, "")
    assert spawned(["status"], env=environment(POSTROOM_STATE=elsewhere)).status == 3


@pytest.mark.requirement("cli-errors-one-line")
def test_ctrl_c_ends_a_waiting_command_with_130(standin: Standin, tmp_path: Path):
    standin.answer("POST /v1/messages", mail(1, "hi"), 201)
    asked = standin.hold("GET", "/v1/messages/m1")
    process = subprocess.Popen(
        command("send", "@bob", "hi", "--wait", "answered", "--state", str(tmp_path)),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert asked.wait(DEADLINE)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == INTERRUPTED
    assert out == ""
    assert "Traceback" not in err


@pytest.mark.requirement("cli-errors-one-line")
def test_a_reader_that_goes_away_makes_no_noise(standin: Standin, tmp_path: Path):
    standin.answer("GET /v1/status", status(*[worker(f"w{n}") for n in range(3000)]))
    postroom = command("status", "--state", str(tmp_path))
    # The status of the pipe's first command is written to its third descriptor.
    script = '{ "$@"; echo $? >&3; } | true'
    reading, writing = os.pipe()
    with os.fdopen(reading) as told:
        done = subprocess.run(
            ["bash", "-c", f"exec 3>&{writing}; {script}", "bash", *postroom],
            env=environment(),
            stderr=subprocess.PIPE,
            pass_fds=(writing,),
            timeout=LIMIT,
            check=False,
        )
        os.close(writing)
        assert done.stderr == b""
        assert int(told.read()) == PIPE_CLOSED


def test_output_without_room_ends_with_10_and_one_line(standin: Standin, tmp_path: Path):
    standin.answer("GET /v1/status", status(worker("bob")))
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("status", "--state", str(tmp_path)),
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=LIMIT,
            check=False,
        )
    assert (done.returncode, done.stderr) == (10, b"postroom: there is no room for the output\n")


def test_an_error_text_cannot_act_on_the_terminal(postroom: Run, standin: Standin):
    hostile = problem("not-found", "gone\x1b]0;owned\x07 \x9b31m\u202e", "x\x1b[2J")
    standin.answer("POST /v1/workers/bob/stop", hostile, 404)
    ended = postroom("stop", "bob")
    assert ended.err == "postroom: gone\n  try: x\n"
