"""Starting a post room, in front and behind, and ending it. The control plane is tests/cli/room."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from postroom import disk
from postroom.cli import detach
from postroom.errors import StateUnwritable
from tests.cli.conftest import LIMIT, SOURCE, Run, command, environment, spawned

ROOM = str(Path(__file__).parent / "room")
TEMPLATE = '[worker]\nname = "bob"\n[workstation]\ncommand = ["true"]\n'
ROOT = str(Path(__file__).parents[2])


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Says what the control plane shall do; ends what is left of it."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([ROOM, SOURCE, ROOT]))

    def choose(behaviour: str) -> None:
        monkeypatch.setenv("ROOM", behaviour)

    choose("works")
    yield choose
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((tmp_path / "room.pid").read_text()), signal.SIGKILL)


def child_environment() -> dict[str, str]:
    return environment(PYTHONPATH=os.environ["PYTHONPATH"], ROOM=os.environ["ROOM"])


@pytest.mark.requirement("one-word-starts")
def test_up_detached_returns_when_it_is_ready_and_down_when_it_is_gone(
    postroom: Run, room: object, tmp_path: Path
):
    ended = postroom(
        "up", "--detach", "--port", "0", "--nats-port=5", "--memory", "--sandbox", "none"
    )
    said = json.loads((tmp_path / "server.json").read_text())
    assert ended.out == f"post room is up at {said['url']} (pid {said['pid']})\n"
    settings = json.loads((tmp_path / "room.json").read_text())
    assert settings["state"] == str(tmp_path)
    assert (settings["http_port"], settings["nats_port"]) == (0, 5)
    assert (settings["memory"], settings["sandbox"]) == (True, "none")
    assert postroom("status").status == 0
    assert os.getsid(said["pid"]) == said["pid"]
    again = postroom("up", "--detach")
    assert again.status == 5
    assert "runs already" in again.err
    down = postroom("down")
    assert (down.status, down.out) == (0, f"post room ended (pid {said['pid']})\n")
    assert os.waitpid(said["pid"], os.WNOHANG)[0] == said["pid"]  # it has ended: our child here
    assert postroom("down").status == 3


def test_up_in_front_runs_until_it_is_ended_and_keeps_the_defaults(room: object, tmp_path: Path):
    from postroom.settings import Settings

    reading, writing = os.pipe()
    process = subprocess.Popen(
        command("up", "--state", str(tmp_path)),
        env=child_environment() | {"POSTROOM_READY_FD": str(writing)},
        pass_fds=(writing,),
    )
    os.close(writing)
    with os.fdopen(reading) as ready:
        assert ready.readline() == "ready\n"
    assert spawned(["down", "--state", str(tmp_path)]).status == 0
    assert process.wait(LIMIT) == 0
    settings = json.loads((tmp_path / "room.json").read_text())
    assert settings == json.loads(
        json.dumps(
            {name: getattr(Settings(state=tmp_path), name) for name in settings}, default=str
        )
    )


@pytest.mark.requirement("cli-errors-one-line")
@pytest.mark.parametrize(
    "behaviour, status, message",
    [
        ("fails", 10, "postroom: the port is taken\n  try: another one\n"),
        ("crashes", 1, "postroom: the post room did not start: RuntimeError: boom\n"),
    ],
)
def test_why_a_detached_start_failed_is_told_here(
    postroom: Run,
    room: Callable[[str], None],
    tmp_path: Path,
    behaviour: str,
    status: int,
    message: str,
):
    room(behaviour)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "up.log").write_text("postroom: an older failure\n")
    ended = postroom("up", "--detach")
    assert ended.status == status
    assert message in ended.err
    assert "older" not in ended.err


@pytest.mark.requirement("disk-full-refused")
def test_a_start_that_could_not_say_why_it_failed_since_the_disk_ran_full_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    log = tmp_path / "up.log"
    log.touch()
    assert "exit status 120" in str(detach._failure(120, log, 0))
    monkeypatch.setattr(disk, "RESERVE", 1 << 80)

    with pytest.raises(StateUnwritable, match="is full"):
        detach._failure(120, log, 0)


def test_a_start_that_hangs_is_ended_and_told(
    postroom: Run, room: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(detach, "READY_TIMEOUT", 0.5)
    room("hangs")
    ended = postroom("up", "--detach")
    assert ended.status == 10
    assert "not ready after" in ended.err
    pid = tmp_path / "room.pid"
    if pid.exists():  # it may have been ended before it came so far
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


def test_an_end_that_does_not_come_in_time_is_told(postroom: Run, room: Callable[[str], None]):
    room("stays")
    assert postroom("up", "--detach").status == 0
    ended = postroom("down", "--timeout", "0.2")
    assert ended.status == 9
    assert "has not ended within 0.2 s" in ended.err


def test_spawn_starts_a_post_room_if_none_runs_and_says_so(
    postroom: Run, room: object, tmp_path: Path
):
    template = tmp_path / "t.toml"
    template.write_text(TEMPLATE)
    ended = postroom("spawn", str(template))
    assert ended.status == 0
    assert ended.out.startswith("spawned @bob")
    assert "no post room is running: starting one" in ended.err
    assert postroom("spawn", str(template)).err == ""
    assert postroom("down").status == 0


@pytest.mark.requirement("one-word-starts")
def test_two_spawns_at_once_start_one_post_room(room: object, tmp_path: Path):
    template = tmp_path / "t.toml"
    template.write_text(TEMPLATE)
    environ = child_environment()

    def spawn(_: int) -> int:
        return spawned(["spawn", str(template), "--state", str(tmp_path)], env=environ).status

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(spawn, range(3))) == [0, 0, 0]
    assert (tmp_path / "starts").read_text() == "x"


@pytest.mark.requirement("one-word-starts")
def test_a_spawn_waits_for_a_post_room_that_is_starting_in_front(
    room: Callable[[str], None], tmp_path: Path
):
    room("waits")
    os.mkfifo(tmp_path / "go")
    template = tmp_path / "t.toml"
    template.write_text(TEMPLATE)
    words = ["--state", str(tmp_path)]
    front = subprocess.Popen(command("up", *words), env=child_environment())
    with (tmp_path / "go").open("w"):  # it has begun
        late = subprocess.Popen(
            command("spawn", str(template), *words),
            env=child_environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        assert late.stderr is not None
        assert "no post room is running" in late.stderr.readline()
    assert late.wait(LIMIT) == 0
    late.stderr.close()
    assert (tmp_path / "starts").read_text() == "x"
    assert spawned(["down", *words], env=child_environment()).status == 0
    assert front.wait(LIMIT) == 0


def test_a_file_in_place_of_the_state_folder_is_told(postroom: Run, tmp_path: Path):
    (tmp_path / "file").write_text("")
    ended = postroom("up", "--detach", "--state", str(tmp_path / "file" / "state"))
    assert ended.status == 10
    assert "cannot write the state folder" in ended.err
