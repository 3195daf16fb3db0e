"""A backup of a post room that runs, restored into another folder, goes on with everything."""

from __future__ import annotations

import gzip
import json
import stat
import threading
from collections.abc import Iterator
from typing import Self

import httpx2
import pytest

from tests.e2e.conftest import EXAMPLES, PostRoom

pytestmark = pytest.mark.requirement("backup-restores-all")

INVALID, CONFLICT = 2, 5


@pytest.fixture
def passphrase(room: PostRoom) -> str:
    path = room.scratch / "passphrase"
    path.write_text("correct horse\n")
    return str(path)


@pytest.fixture
def other(room: PostRoom) -> Iterator[PostRoom]:
    """A second post room, on a folder that does not exist yet."""
    second = PostRoom(room.scratch / "other" / "state", room.scratch)
    second.state.parent.mkdir()
    yield second
    if (second.state / "server.json").exists():
        second.call("down")


class Traffic:
    """Sends messages until it is ended; `sent` were accepted."""

    def __init__(self, room: PostRoom) -> None:
        self.sent: list[str] = []
        self._room = room
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with self._room.client() as client:
            while not self._end.is_set():
                self.sent.append(client.send("@echo", f"n{len(self.sent)}")["id"])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_backup_under_traffic_has_everything_accepted_before_it_and_goes_on(
    room: PostRoom, other: PostRoom, passphrase: str
) -> None:
    room.up()
    room.run("org", "create", "second")
    room.run("spawn", str(EXAMPLES / "echo.toml"))
    room.run("config", "set", "messages.stale_after", "77")
    (room.state / "workers" / room.worker("echo")["uid"] / "workspace" / "kept.txt").write_text(
        "kept"
    )
    anna = room.run("people", "add", "anna").strip()
    blob = room.json("blob", "put", str(EXAMPLES / "echo.toml"))["url"]
    room.run("delegate", "@echo", "a task", "--wait")
    (task,) = [task["id"] for task in room.json("task", "list", "--all")["tasks"]]
    room.run("--org", "second", "chat", "#main", given="of the second\n")
    backup = room.scratch / "backup"
    with Traffic(room) as traffic, room.client() as client:
        while len(traffic.sent) < 20:
            client.wait(client.send("@echo", "aside")["id"], "answered", 30.0)
        before = list(traffic.sent)
        assert "backed up to" in room.run("backup", str(backup), "--passphrase-file", passphrase)
        assert stat.S_IMODE(backup.stat().st_mode) == 0o600
        until_here = len(traffic.sent)
        while len(traffic.sent) < until_here + 5:
            client.wait(client.send("@echo", "later")["id"], "answered", 30.0)  # it goes on
    uid, operator = room.worker("echo")["uid"], room.server["token"]
    room.run("down")

    other.run("restore", str(backup), "--passphrase-file", passphrase)
    for path in other.state.rglob("*"):
        if not path.is_symlink():
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
    other.up()

    with other.client() as client:
        assert client.worker("echo")["uid"] == uid
        states = {client.wait(message, "answered", 60.0)["state"] for message in before}
        assert states == {"answered"}
        assert client.task(task)["state"] == "completed"
        new = client.send("@echo", "after the restore")
        assert client.wait(new["id"], "answered", 60.0)["state"] == "answered"
    assert other.run("config", "get", "messages.stale_after").strip() == "77"
    assert (other.state / "workers" / uid / "workspace" / "kept.txt").read_text() == "kept"
    assert other.run("blob", "get", blob) == (EXAMPLES / "echo.toml").read_text()
    assert "of the second" in other.run("--org", "second", "chat", "#main", given="")
    assert other.json("deadletters", "list")["deadletters"] == []
    # Keys are those of the backup: the operator's, and everybody's.
    assert other.server["token"] == operator
    me = {"Authorization": f"Bearer {anna}"}
    assert httpx2.get(other.server["url"] + "/v1/me", headers=me).json()["nick"] == "anna"


@pytest.mark.requirement("secrets-sealed")
def test_a_post_room_that_is_down_is_backed_up_and_its_keys_are_not_readable(
    room: PostRoom, other: PostRoom, passphrase: str
) -> None:
    room.up()
    room.run("chat", "#main", given="kept\n")
    room.run("webhooks", "add", "https://hooks.example/mail")
    room.run("down")
    backup = room.scratch / "backup"
    room.run("backup", str(backup), "--passphrase-file", passphrase)
    seeds = (room.state / "keys" / "trust.json").read_bytes()
    content = gzip.decompress(backup.read_bytes())
    assert seeds[20:60] not in content
    assert json.loads(seeds)["operator"].encode() not in content
    assert (room.state / "keys" / "operator.key").read_bytes().strip() not in content
    assert (room.state / "keys" / "sealing.key").read_bytes() not in content

    wrong = room.scratch / "wrong"
    wrong.write_text("wrong horse\n")
    other.run("restore", str(backup), "--passphrase-file", str(wrong), status=INVALID)
    assert "does not open the keys" in other.stderr
    assert not other.state.exists()
    room.run("restore", str(backup), "--passphrase-file", passphrase, status=CONFLICT)
    assert "not empty" in room.stderr

    other.state.mkdir()
    other.run("restore", str(backup), "--passphrase-file", passphrase)
    other.up()
    with other.client() as client:
        assert [post["text"] for post in client.posts("main")] == ["kept"]
        assert [hook["state"] for hook in client.webhooks()] == ["active"]  # its secret opens
