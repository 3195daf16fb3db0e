"""A disk that runs full refuses in words, loses nothing, and goes on when there is space again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from postroom.client.http import Client
from postroom.errors import PostroomError, StateUnwritable
from tests.e2e.conftest import EXAMPLES, PostRoom, gone, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        sys.platform != "linux" or os.geteuid() != 0, reason="only root can mount a small disk"
    ),
]


@pytest.fixture
def disk(room: PostRoom) -> Iterator[Path]:
    """A disk of 24 MiB that has the room's state folder in it."""
    folder = room.scratch / "disk"
    folder.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "tmpfs", str(folder)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode:
        pytest.skip("this machine lets nobody mount")
    room.state = folder / "state"
    try:
        yield folder
    finally:
        if (room.state / "server.json").exists():
            room.run("down")
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def _sent(client: Client, text: str) -> bool:
    try:
        client.send("@echo", text, key=text)
    except PostroomError:
        return False
    return True


def _words(room: PostRoom, *words: str) -> tuple[int, str]:
    """What a command ends with and says is wrong."""
    done = subprocess.run(
        room.command(*words), env=room.env, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


def _broken(room: PostRoom, ballast: Path) -> bool:
    """Whether nats-server has given a stream up.

    While it has not, one page is free at a time: enough for the audit log, so that an answer passes the gateway, and
    too little for the answer.
    """
    if "critical write error" in (room.state / "nats" / "nats-server.log").read_text():
        return True
    if os.statvfs(ballast).f_bavail == 0:
        os.truncate(ballast, ballast.stat().st_size - 4096)
    return False


@pytest.mark.requirement("disk-full-refused")
@pytest.mark.parametrize("words", [("up",), ("up", "--detach")])
def test_a_start_on_a_full_disk_and_on_a_tiny_one_says_so(
    room: PostRoom, disk: Path, words: tuple[str, ...]
) -> None:
    ballast = disk / "ballast"
    ballast.write_bytes(bytes((24 - 2) * 1024 * 1024))  # of which a post room could be made
    room.run(*words, status=10)
    assert f"the disk of {room.state} is full" in room.stderr
    assert "--state DIR" in room.stderr
    ballast.unlink()

    room.up()
    room.run("down")
    _fill(ballast)
    room.run(*words, status=10)
    assert f"the disk of {room.state} is full" in room.stderr
    assert "Traceback" not in room.stderr

    _fill(room.state / "ballast")
    (room.state / "lock").unlink()  # so not even that can be made
    room.run(*words, status=10)
    assert "Traceback" not in room.stderr


@pytest.mark.requirement("disk-full-refused")
def test_a_start_on_a_disk_that_is_nearly_full_is_taken_with_a_note(
    room: PostRoom, disk: Path
) -> None:
    (disk / "ballast").write_bytes(bytes(24 * 1024 * 1024 - 4 * 1024 * 1024 - 64 * 1024))

    room.up()

    assert "note: the disk of" in room.stderr
    assert "refuses every message" in room.stderr


@pytest.mark.requirement("disk-full-refused")
def test_a_full_disk_is_told_and_what_was_accepted_is_answered_later(
    room: PostRoom, disk: Path
) -> None:
    room.up()
    room.run("spawn", str(EXAMPLES / "echo.toml"))
    room.run("send", "@echo", "first", "--wait", "answered")
    with room.client() as client:
        long = "x" * 8000  # so that the answers do not fit in what the files have allocated
        accepted = [client.send("@echo", f"{n} {long}", key=f"b{n}")["id"] for n in range(40)]
        _fill(disk / "ballast")
        with pytest.raises(StateUnwritable, match="full"):
            client.send("@echo", "refused", key="refused")
        until(lambda: _broken(room, disk / "ballast"))  # the worker goes on answering

        (disk / "ballast").unlink()

        until(lambda: _sent(client, "afterwards"))
        accepted.append(client.send("@echo", "afterwards", key="afterwards")["id"])
        states = [client.wait(message, "answered", 60.0)["state"] for message in accepted]
    assert states == ["answered"] * len(accepted)


@pytest.mark.requirement("disk-full-refused")
def test_a_full_disk_ends_neither_worker_nor_post_room_whoever_is_started_again(
    room: PostRoom, disk: Path
) -> None:
    room.up()
    for nick in ("one", "two"):
        room.run("spawn", str(EXAMPLES / "echo.toml"), "--name", nick)
        room.await_state(nick, "idle")
    before, pids = room.server, [room.worker(nick)["pid"] for nick in ("one", "two")]
    _fill(disk / "ballast")

    status, said = _words(room, "restart", "one")
    assert (status, "is full" in said, "try: free space" in said) == (10, True, True)

    assert "bus: the disk of the post room is full" in room.run("status")
    os.kill(before["nats_pid"], signal.SIGKILL)
    until(lambda: room.json("status")["bus"] == "the bus does not answer: the disk is full")
    with httpx2.Client(
        base_url=before["url"], headers={"Authorization": f"Bearer {before['token']}"}, timeout=60
    ) as api:
        for path, body in (
            ("/v1/workers/two/restart", None),
            ("/v1/messages", {"to": "@two", "text": "hi"}),
            ("/v1/orgs", {"name": "acme"}),
        ):
            refused = api.post(path, json=body)
            assert refused.status_code == 503, path
            assert refused.json()["code"] == "state-unwritable"
    assert [room.worker(nick)["pid"] for nick in ("one", "two")] == pids
    assert not any(gone(pid) for pid in pids)

    (disk / "ballast").unlink()

    until(lambda: _words(room, "restart", "one")[0] == 0)
    for nick in ("one", "two"):
        assert "hi" in room.run("send", f"@{nick}", "hi", "--wait", "answered")
    assert room.server["pid"] == before["pid"]
    assert room.server["nats_pid"] != before["nats_pid"]
    for log in ("control.log", "up.log"):
        assert "Traceback" not in (room.state / "logs" / log).read_text()


@pytest.mark.requirement("disk-full-refused")
def test_a_worker_can_be_stopped_on_a_full_disk_which_it_may_have_filled(
    room: PostRoom, disk: Path
) -> None:
    room.up()
    room.run("spawn", str(EXAMPLES / "echo.toml"))
    pid = room.worker("echo")["pid"]
    _fill(disk / "ballast")

    status, said = _words(room, "stop", "echo")

    assert (status, "@echo has ended, and that is not noted" in said) == (10, True)
    assert "postroom stop echo" in said
    until(lambda: gone(pid))
    (disk / "ballast").unlink()
    until(lambda: _words(room, "stop", "echo")[0] == 0)
