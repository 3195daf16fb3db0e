"""What a post room keeps: by rules of retention, and when older files are put back."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from postroom.client.http import Client
from postroom_a2a.times import format_time
from tests.e2e.conftest import EXAMPLES, PostRoom, gone, until

CONFLICT = 5
LONG_AGO = time.time() - 40 * 86400


def age(database: Path, text: str) -> None:
    """Make a message as old as if it had ended 40 days ago."""
    with closing(sqlite3.connect(database)) as connection, connection:
        values = {"at": LONG_AGO, "text": text}
        changed = connection.execute(
            "UPDATE messages SET stored_at = :at, updated_at = :at WHERE text = :text", values
        )
        assert changed.rowcount == 1


@pytest.mark.requirement("mail-retention-covered")
def test_prune_says_what_is_due_and_deletes_it_when_somebody_says_so(room: PostRoom) -> None:
    room.run("config", "set", "retention.projects", "demo messages 30d")
    room.up()
    room.run("spawn", str(EXAMPLES / "echo.toml"))
    for text in ("long ago", "today"):
        room.run("send", "@echo", text, "--wait", "answered")
    room.run("down")
    age(room.state / "projection.db", "long ago")
    room.up()

    (due,) = room.json("prune", "--dry-run")["retention"]
    assert (due["kind"], due["project"], due["count"]) == ("messages", "demo", 1)
    assert due["oldest"] == format_time(LONG_AGO)
    assert "messages  #demo    1" in room.run("prune", "--dry-run")
    room.run("prune", status=CONFLICT)
    assert len(room.json("prune", "--dry-run")["retention"]) == 1

    assert "deleted 1 messages, 0.0 MiB" in room.run("prune", "--yes")
    with room.client() as client:
        texts = [message["text"] for message in client.chat("@echo")]
    assert "long ago" not in texts
    assert "today" in texts
    assert "nothing is due" in room.run("prune")


def copy(room: PostRoom, into: Path) -> None:
    into.mkdir()
    for path in room.state.glob("projection.db*"):
        shutil.copy2(path, into / path.name)


def put_back(room: PostRoom, kept: Path) -> None:
    for path in room.state.glob("projection.db*"):
        path.unlink()
    for path in kept.iterdir():
        shutil.copy2(path, room.state / path.name)


@pytest.mark.slow
@pytest.mark.requirement("mail-rebuild-equal")
@pytest.mark.timeout(120)
def test_older_files_of_the_projection_under_a_newer_log_show_everything_again(
    room: PostRoom,
) -> None:
    room.up()
    room.run("spawn", str(EXAMPLES / "echo.toml"))
    blob = room.json("blob", "put", str(EXAMPLES / "echo.toml"))["url"]
    room.run("send", "@echo", "before", "--wait", "answered")
    room.run("down")
    copy(room, room.scratch / "older")
    room.up()
    room.run("spawn", str(EXAMPLES / "echo.toml"), "--name", "newer")
    for nick in ("@echo", "@newer"):
        room.run("send", nick, "after", "--wait", "answered")
        room.run("delegate", nick, f"a task for {nick}", "--wait")
    room.run("chat", "#main", given="a post\n")
    with room.client() as client:
        # What comes last is in no checkpoint: a copy of the running files has it in the WAL alone.
        copy(room, room.scratch / "running")
        shown = everything(room, client)
    for pid in (room.server["pid"], room.server["nats_pid"]):
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: gone(pid))

    for kept in ("older", "running", "none"):
        (room.scratch / "none").mkdir(exist_ok=True)
        put_back(room, room.scratch / kept)
        room.up()
        with room.client() as client:
            assert everything(room, client) == shown, kept
        assert room.run("blob", "get", blob) == (EXAMPLES / "echo.toml").read_text()
        room.run("down")


def everything(room: PostRoom, client: Client) -> dict[str, Any]:
    return {
        "messages": [client.chat(nick) for nick in ("@echo", "@newer")],
        "tasks": room.json("task", "list", "--all")["tasks"],
        "posts": client.posts("main"),
        "workers": sorted(worker["nick"] for worker in client.workers()),
    }
