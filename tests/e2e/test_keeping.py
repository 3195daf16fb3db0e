"""What a post room keeps: by rules of retention, and when older files are put back."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.conftest import EXAMPLES, PostRoom

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


@pytest.mark.requirement("retention-chosen")
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
    assert due["oldest"] == pytest.approx(LONG_AGO)
    assert "messages  #demo    1" in room.run("prune", "--dry-run")
    room.run("prune", status=CONFLICT)
    assert len(room.json("prune", "--dry-run")["retention"]) == 1

    assert "deleted 1 messages, 0.0 MiB" in room.run("prune", "--yes")
    with room.client() as client:
        texts = [message["text"] for message in client.chat("@echo")]
    assert "long ago" not in texts
    assert "today" in texts
    assert "nothing is due" in room.run("prune")
