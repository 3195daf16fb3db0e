"""A message that somebody changes in the database of a post room is found, named, and mended from the log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import httpx2
import pytest

from postroom.identity.trust import Trust
from tests.e2e.conftest import PostRoom, until

pytestmark = pytest.mark.requirement("post-message-genuine")

ALTERED = 10


@pytest.fixture
def other(room: PostRoom) -> Iterator[PostRoom]:
    second = PostRoom(room.scratch / "other" / "state", room.scratch)
    second.state.parent.mkdir()
    yield second
    if (second.state / "server.json").exists():
        second.call("down")


def change(room: PostRoom, message: str, text: str) -> None:
    (file,) = room.state.rglob("projection.db")
    with closing(sqlite3.connect(file, timeout=10)) as driver, driver:
        done = driver.execute("UPDATE messages SET text = ? WHERE id = ?", (text, message))
        assert done.rowcount == 1


@pytest.mark.timeout(180)
def test_a_changed_row_is_named_shown_to_nobody_and_mended_from_the_log(
    room: PostRoom, other: PostRoom
) -> None:
    room.up()
    anna = {"Authorization": f"Bearer {room.run('people', 'add', 'anna').strip()}"}
    with room.client() as client:
        good, bad = (client.send("@anna", text)["id"] for text in ("is well", "pay 10 to bob"))
    assert "2 messages are checked" in room.run("admin", "verify")

    change(room, bad, "pay 9000 to mallory")

    url = room.server["url"]
    told = httpx2.get(f"{url}/v1/messages/{bad}", headers=anna)
    assert (told.status_code, told.json()["type"]) == (500, "urn:postroom:error:message-altered")
    assert bad in told.text
    listed = httpx2.get(f"{url}/v1/inbox", headers=anna)
    assert {mail["id"]: mail.get("altered", False) for mail in listed.json()["messages"]} == {
        good: False,
        bad: True,
    }
    assert "9000" not in listed.text + told.text
    until(lambda: bad in room.run("alerts"))
    named = room.run("admin", "verify", status=ALTERED)
    assert bad in named
    assert "to @anna" in named
    assert good not in named

    # The key rotates, and a backup has it: what was altered stays altered.
    assert room.json("keys", "rotate", "--messages")["roles"] == ["messages"]
    words = room.scratch / "words"
    words.write_text("correct horse\n")
    room.run("backup", str(room.scratch / "saved"), "--passphrase-file", str(words))
    room.run("down")
    assert room.call("admin", "verify", "--json").returncode == ALTERED
    other.run("restore", str(room.scratch / "saved"), "--passphrase-file", str(words))
    # A rotation that was killed before all messages were signed: the next start signs them.
    Trust.load_or_create(room.state / "keys").rotate_message_keys()
    for restored in (room, other):
        assert bad in restored.run("admin", "verify", status=ALTERED)
        # Without a snapshot all of it is folded again; the one of a backup holds the altered row.
        mended = restored.json("admin", "rebuild")["mended"]
        assert mended == (1 if restored is other else 0)
        assert "2 messages are checked" in restored.run("admin", "verify")
        restored.up()
        assert not Trust.load_or_create(restored.state / "keys").message_keys().former
        shown = httpx2.get(f"{restored.server['url']}/v1/messages/{bad}", headers=anna).json()
        assert shown["text"] == "pay 10 to bob"
