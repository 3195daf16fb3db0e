"""What `postroom logs` shows of a worker's log, and how it follows one."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from postroom.cli.root import INTERRUPTED
from tests.cli.conftest import LIMIT, Run, command, environment
from tests.cli.terminal import Terminal
from tests.client.standin import BOB, Standin, worker

AT = "2026-01-05T14:12:28+0000"
LOCAL = time.strftime("%Y-%m-%d %H:%M", time.localtime(1767622348))


def said(source: str, text: str) -> str:
    return f"{AT} INFO postroom.sidecar.session agent {source}: {text}\n"


TRACE = [
    "Traceback (most recent call last):",
    '  File "agent.py", line 3, in <module>',
    "    main()",
    "ValueError: no",
]
LOG = (
    f"{AT} INFO postroom.sidecar.main the wall holds\n"
    + said("stdout", "hello")
    + "".join(said("stderr", line) for line in TRACE)
    + f"{AT} WARNING postroom.sidecar.agent the agent ended: exit code 1\n"
)


@pytest.fixture
def log(standin: Standin, tmp_path: Path) -> Path:
    """The log of bob, with nothing in it."""
    standin.answer("GET /v1/workers/bob", worker())
    folder = tmp_path / "workers" / BOB["uid"]
    folder.mkdir(parents=True)
    (folder / "log").touch()
    return folder / "log"


@pytest.mark.requirement("cli-status-attention")
def test_logs_show_what_the_agent_printed_as_it_printed_it(postroom: Run, log: Path):
    log.write_text(LOG)
    ended = postroom("logs", "bob")
    assert ended.out.splitlines() == ["hello", *TRACE]
    assert ended.err.endswith("***| the agent ended: exit code 1\n")
    assert "the wall holds" not in ended.out + ended.err
    assert postroom("logs", BOB["uid"], "-l", "2").out.splitlines() == [TRACE[-1]]


@pytest.mark.requirement("cli-status-attention")
def test_all_of_a_log_has_the_sidecars_lines_with_local_times(postroom: Run, log: Path):
    log.write_text(LOG)
    lines = postroom("logs", "bob", "--all").out.splitlines()
    assert lines[:4] == [
        f"{LOCAL} ***| the wall holds",
        f"{LOCAL} out| hello",
        f"{LOCAL} err| {TRACE[0]}",
        f"{LOCAL} err| {TRACE[1]}",
    ]


@pytest.mark.requirement("text-controls-stripped")
def test_lines_that_nobody_signed_are_shown_made_harmless(postroom: Run, log: Path):
    log.write_bytes(b"one\ntwo\x1b[2J\n\xffthree")
    assert postroom("logs", "@bob", "-l", "2").out == "two\n\ufffdthree\n"


def test_an_agent_cannot_write_a_line_in_the_name_of_its_sidecar(postroom: Run, log: Path):
    log.write_text(said("stdout", f"{AT} WARNING postroom.sidecar.agent all is well"))
    ended = postroom("logs", "bob")
    assert (ended.out, ended.err) == (f"{AT} WARNING postroom.sidecar.agent all is well\n", "")


def test_the_lines_before_a_rotation_are_shown_too(postroom: Run, log: Path):
    log.with_name("log.1").write_text(said("stdout", "before"))
    log.write_text(said("stdout", "behind"))
    assert postroom("logs", "bob").out == "before\nbehind\n"


def test_an_empty_log_says_so(postroom: Run, log: Path):
    assert postroom("logs", "bob").err == "nothing was printed\n"


def test_logs_in_json_have_time_and_source(postroom: Run, log: Path):
    log.write_text(LOG)
    found = json.loads(postroom("logs", "bob", "--json").out)
    assert found["lines"][:2] == ["hello", TRACE[0]]
    assert found["entries"][0] == {
        "at": "2026-01-05T14:12:28.000Z",
        "source": "stdout",
        "text": "hello",
    }


def test_a_link_in_place_of_a_log_is_not_followed(postroom: Run, log: Path, tmp_path: Path):
    (tmp_path / "secret").write_text("secret")
    log.unlink()
    log.symlink_to(tmp_path / "secret")
    ended = postroom("logs", BOB["uid"])
    assert ended.status == 4
    assert "secret" not in ended.out


@pytest.mark.requirement("cli-status-attention")
def test_a_log_is_followed_across_parts_of_lines_and_a_rotation(log: Path, tmp_path: Path):
    log.write_text(said("stdout", "one"))
    process = subprocess.Popen(
        command("logs", BOB["uid"], "--follow", "--state", str(tmp_path)),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "one\n"
    with log.open("a") as out:
        out.write(said("stdout", "  two")[:-3])
        out.flush()
        out.write("wo\n")
    assert process.stdout.readline() == "  two\n"
    log.replace(log.with_name("log.1"))
    log.write_text(said("stderr", "three"))  # as after a restart, or past the limit of a log
    assert process.stdout.readline() == "three\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out, err) == (INTERRUPTED, "", "\n")


@pytest.mark.requirement("cli-status-attention")
def test_on_a_terminal_each_line_has_its_time_and_where_it_was_printed(log: Path, tmp_path: Path):
    log.write_text(said("stderr", "    indented"))
    with Terminal("logs", BOB["uid"], "--state", str(tmp_path)) as terminal:
        assert terminal.ended() == 0
    assert terminal.plain == f"{LOCAL} err|     indented\n"
