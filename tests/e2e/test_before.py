"""A post room opens what the version before has left: a state folder, a backup, a database in PostgreSQL.

`before.tar.xz` has all three, made with the code of commit 651ef158; their keys are good for nothing else: `files` is a
state folder and `backup` the backup of it, `postgres` a state folder whose rows are in `postgres.sql`. In each there
is the worker @busy, which ran when the post room ended, and @away, which did not, and an organisation `team`. @busy
has answered a message and ended two tasks, one of them after a question to the operator, and there is a post: of
these the log has nothing, only the snapshot beside it. Behind that, a third task asks, a message waits for @away, and
there is a second post.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import PostRoom, until
from tests.postgres import PostgresServer

LEFT = Path(__file__).with_name("before.tar.xz")
CURSOR = "6-4-1-1-1023"
"""What a client of the stream of events had when the snapshot was taken."""


@pytest.fixture
def left(room: PostRoom) -> Path:
    """Everything that was left, unpacked."""
    folder = room.scratch / "left"
    with tarfile.open(LEFT) as archive:
        if hasattr(tarfile, "tar_filter"):  # Python 3.11.4 and newer
            archive.extraction_filter = tarfile.tar_filter
        archive.extractall(folder)
    return folder


@pytest.mark.requirement("store-older-refused")
def test_a_state_folder_of_the_version_before_is_whole_and_goes_on(
    room: PostRoom, left: Path
) -> None:
    shutil.move(left / "files", room.state)
    everything_is_there_and_goes_on(room)


@pytest.mark.requirement("backup-restores-all", "store-older-refused")
def test_a_backup_of_the_version_before_is_whole_and_goes_on(room: PostRoom, left: Path) -> None:
    words = room.scratch / "passphrase"
    words.write_text("correct horse\n")
    room.run("restore", str(left / "backup"), "--passphrase-file", str(words))
    everything_is_there_and_goes_on(room)


@pytest.mark.requirement("store-older-refused")
def test_a_database_in_postgresql_of_the_version_before_is_whole_and_goes_on(
    room: PostRoom, left: Path, postgres: PostgresServer
) -> None:
    url = room.env["POSTROOM_DATABASE_URL"] = postgres.new_database()
    postgres.sql((left / "postgres.sql").read_text(), url=url)
    shutil.move(left / "postgres", room.state)
    everything_is_there_and_goes_on(room)


def everything_is_there_and_goes_on(room: PostRoom) -> None:
    room.up()
    asks = everything_is_there(room)
    checked = room.json("admin", "verify")["orgs"]["default"]
    assert checked["first"] > 0
    assert checked["altered"] == 0
    room.run("down")
    room.run("admin", "rebuild")
    assert room.json("admin", "verify")["orgs"]["default"] == checked
    room.up()
    assert everything_is_there(room) == asks

    room.run("task", "answer", asks, "red")
    assert "chose red" in room.run("task", "watch", asks)
    room.run("restart", "away", "--same")
    until(lambda: len(room.json("inbox", "--all")["messages"]) == 2)
    texts = {message["text"] for message in room.json("inbox", "--all")["messages"]}
    assert "heard are you there?" in texts
    assert "did more" in room.run("delegate", "@busy", "more", "--wait")
    with room.client() as client:
        app = client.register_session("claude", "one", "app")
        assert client.register_session("claude", "one", "app")["uid"] == app["uid"]
        assert [session["nick"] for session in client.sessions()] == ["app"]


def everything_is_there(room: PostRoom) -> str:
    """Look for each message, task and post that was left; returns the id of the task that asks."""
    (asks,) = room.json("status")["attention"]
    tasks = {task["id"]: task for task in room.json("task", "list", "--all")["tasks"]}
    (heard,) = room.json("inbox", "--all")["messages"]
    assert heard["text"] == "heard good morning"
    assert sorted((task["state"], task["status_text"]) for task in tasks.values()) == [
        ("completed", "chose blue"),
        ("completed", "did tidy"),
        ("input-required", "which?"),
    ]
    assert (room.worker("away")["state"], room.worker("away")["unread"]) == ("stopped", 1)
    assert "no workers" in room.run("--org", "team", "status")

    happened = list(events(room, CURSOR, until_post="still here"))
    assert [record["id"] for kind, record in happened if kind == "task"] == [asks["id"]]
    assert [record["text"] for kind, record in happened if kind == "post"] == ["still here"]
    with room.client() as client:
        assert [post["text"] for post in client.posts("main")] == ["hello all", "still here"]
        sent = [message["text"] for nick in ("@busy", "@away") for message in client.chat(nick)]
    assert sent == [
        "good morning",
        "heard good morning",
        *("tidy", "choose", "choose"),
        "are you there?",
    ]
    return str(asks["id"])


def events(room: PostRoom, after: str, *, until_post: str) -> Iterator[tuple[str, Any]]:
    """What the stream of events has past a cursor that a client has kept: each kind and record."""
    server, kind = room.server, ""
    key = {"Authorization": f"Bearer {server['token']}"}
    url = f"{server['url']}/v1/events"
    with httpx2.stream("GET", url, params={"after": after}, headers=key) as answer:
        for line in answer.iter_lines():
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                record = json.loads(line.removeprefix("data: "))
                yield kind, record
                if record.get("text") == until_post:
                    return
