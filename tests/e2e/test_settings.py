"""Settings of a real post room: kept in its folder, told when they cannot be, and never in the way of its end."""

from __future__ import annotations

import configparser
import json
import os
import plistlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from postroom.settings import DEFAULT_HTTP_PORT, DEFAULT_NATS_PORT
from tests.e2e.conftest import DEADLINE, PostRoom


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.fixture
def usual_ports_taken() -> Iterator[None]:
    """By this test, or by somebody else already."""
    with ExitStack() as stack:
        for port in (DEFAULT_HTTP_PORT, DEFAULT_NATS_PORT):
            with suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
        yield


@pytest.mark.slow
@pytest.mark.requirement("settings-precedence")
def test_what_was_set_holds_for_each_start_and_a_broken_file_keeps_nobody_from_the_end(
    room: PostRoom,
) -> None:
    port = free_port()
    room.run("config", "set", "http.port", str(port))
    room.run("config", "set", "nats.port", "0")
    for _ in range(2):
        room.run("up", "--detach")
        assert room.server["url"] == f"http://127.0.0.1:{port}"
        said = room.run("config", "set", "tls.mode", "auto")
        assert "postroom down, postroom up" in said
        room.run("down")
    room.run("up", "--detach", "--port", "0")
    assert room.server["url"] != f"http://127.0.0.1:{port}"
    (room.state / "postroom.toml").write_text("[http]\nprot = 1\n")

    room.run("status")
    room.run("down")

    room.run("up", "--detach", status=2)
    assert "http.prot" in room.stderr
    assert "http.port, " in room.stderr


def test_a_usual_port_that_is_named_has_to_be_free_and_one_that_is_not_named_need_not(
    room: PostRoom, usual_ports_taken: None
) -> None:
    room.run("up", "--detach", "--port", str(DEFAULT_HTTP_PORT), "--nats-port=0", status=10)
    assert str(DEFAULT_HTTP_PORT) in room.stderr
    assert "--port N, or 0 for any free one" in room.stderr
    room.run("up", "--detach", "--port=0", "--nats-port", str(DEFAULT_NATS_PORT), status=10)
    assert str(DEFAULT_NATS_PORT) in room.stderr
    assert "--nats-port N, or 0 for any free one" in room.stderr

    room.run("up", "--detach")

    assert room.server["url"] != f"http://127.0.0.1:{DEFAULT_HTTP_PORT}"
    assert room.server["nats_url"] != f"nats://127.0.0.1:{DEFAULT_NATS_PORT}"


@pytest.mark.requirement("state-lock-exclusive")
def test_down_ends_a_post_room_whose_api_refuses_the_command(room: PostRoom) -> None:
    room.up()
    said = room.server
    (room.state / "server.json").write_text(json.dumps(said | {"token": "another"}))
    room.run("status", status=6)

    assert room.run("down") == f"post room ended (pid {said['pid']})\n"

    assert not (room.state / "server.json").exists()
    room.run("down", status=3)


def test_down_ends_no_process_that_only_has_the_number_of_a_post_room(room: PostRoom) -> None:
    room.up()
    stale = room.server
    room.run("down")
    with subprocess.Popen(["sleep", "60"]) as other:
        (room.state / "server.json").write_text(json.dumps(stale | {"pid": other.pid}))
        (room.state / "server.json").chmod(0o600)

        room.run("down", "--timeout", "1", status=3)

        assert other.poll() is None
        (room.state / "server.json").unlink()
        other.kill()


@pytest.mark.requirement("state-lock-exclusive")
def test_the_systemd_unit_is_valid_and_its_command_runs_the_post_room(room: PostRoom) -> None:
    room.state = room.scratch / 'a $state "100%"'
    room.env["POSTROOM_STALE_AFTER"] = "60"
    printed = room.run("up", "--port", "0", "--nats-port=0", "--print-unit", "systemd")
    assert "POSTROOM_STALE_AFTER is set in this shell and not in the unit" in room.stderr
    assert not room.state.exists()

    unit = configparser.RawConfigParser()
    unit.optionxform = str  # ty: ignore[invalid-assignment]
    unit.read_string(printed)

    service = unit["Service"]
    assert (service["KillMode"], service["Restart"]) == ("mixed", "on-failure")
    assert unit["Install"]["WantedBy"] == "default.target"
    file = room.scratch / "postroom.service"
    file.write_text(printed)
    if analyse := shutil.which("systemd-analyze"):
        subprocess.run(
            [analyse, "verify", "--user", str(file)],
            env=room.env | {"XDG_RUNTIME_DIR": str(room.scratch)},
            check=True,
            timeout=DEADLINE,
        )
    _run_like_systemd(room, service["ExecStart"])


def _run_like_systemd(room: PostRoom, command: str) -> None:
    words = [
        word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command, posix=True)
    ]
    assert Path(words[0]).is_absolute()
    reading, writing = os.pipe()
    process = subprocess.Popen(
        words,
        env={"HOME": str(room.scratch), "POSTROOM_READY_FD": str(writing)},
        pass_fds=(writing,),
        cwd="/",
    )
    os.close(writing)
    with os.fdopen(reading) as ready:
        assert ready.readline() == "ready\n"
    assert room.server["pid"] == process.pid
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE) == 0


@pytest.mark.requirement("state-lock-exclusive")
def test_the_launchd_job_has_the_same_command(room: PostRoom) -> None:
    room.state = room.scratch / "a & <b>--"
    (room.scratch / "own.pem").touch()

    own = os.path.relpath(room.scratch / "own.pem")

    printed = room.run("up", "--print-unit", "launchd", "--memory", "--tls-cert", own)

    job = plistlib.loads(printed.encode())
    *words, cert = job["ProgramArguments"][1:]
    assert words == ["--state", str(room.state), "up", "--memory"]
    assert cert == f"--tls-cert={Path(own).absolute()}"
    assert job["KeepAlive"] == {"SuccessfulExit": False}


def test_the_unit_of_this_platform_is_printed_where_none_is_named(room: PostRoom) -> None:
    begins = "<?xml" if sys.platform == "darwin" else "# Runs a post room at boot"
    assert room.run("up", "--print-unit").startswith(begins)
