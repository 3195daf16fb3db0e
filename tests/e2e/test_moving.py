"""All rows move from one database to the other and back, compared, and nothing is lost on the way."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.e2e.conftest import EXAMPLES, PostRoom
from tests.postgres import PostgresServer

pytestmark = pytest.mark.requirement("backup-restores-all")

CONFLICT = 5


def everything(room: PostRoom) -> dict[str, Any]:
    with room.client() as client:
        return {
            "messages": client.chat("@echo"),
            "tasks": room.json("task", "list", "--all")["tasks"],
            "posts": client.posts("main"),
            "agents": [(agent["uid"], agent["nick"]) for agent in client.agents()],
            "second": room.run("--org", "second", "chat", "#main", given=""),
        }


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_post_room_moves_to_postgresql_and_back(room: PostRoom, postgres: PostgresServer) -> None:
    url = postgres.new_database()
    room.up()
    room.run("org", "create", "second")
    room.run("spawn", str(EXAMPLES / "echo.toml"))
    room.run("send", "@echo", "hello", "--wait", "answered")
    room.run("delegate", "@echo", "a task", "--wait")
    room.run("chat", "#main", given="a post\n")
    room.run("--org", "second", "chat", "#main", given="of the second\n")
    shown = everything(room)
    room.run("admin", "move-store", "-", given=url, status=CONFLICT)  # while it runs
    room.run("down")

    printed = room.run("admin", "move-store", "-", given=url)
    assert "rows of the organisation second, and compared them" in printed
    assert not (room.state / "projection.db").exists()
    room.up()
    assert everything(room) == shown
    room.run("send", "@echo", "on PostgreSQL", "--wait", "answered")
    shown = everything(room)
    room.run("down")

    room.run("admin", "move-store", "sqlite")
    room.up()
    assert everything(room) == shown
    room.run("send", "@echo", "back again", "--wait", "answered")


def test_a_database_that_is_not_empty_is_left_alone(
    room: PostRoom, postgres: PostgresServer
) -> None:
    url = postgres.new_database()
    room.up()
    room.run("down")
    names = ("projection.db", "blobs.db", "accounts.db")
    room.run("admin", "move-store", "-", given=url)
    for name in names:
        (moved,) = room.state.glob(f"moved-*-{name}")
        moved.replace(room.state / name)

    room.run("admin", "move-store", "sqlite", status=CONFLICT)

    assert "is not empty" in room.stderr
    assert room.run("config", "get", "database.url").strip() == "(secret)"
    with closing(sqlite3.connect(room.state / "accounts.db")) as rows:
        assert rows.execute("SELECT count(*) FROM agents").fetchone() == (1,)
