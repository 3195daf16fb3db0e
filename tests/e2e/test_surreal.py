"""A post room whose tasks lie in SurrealDB: used, killed, restarted, rebuilt, backed up and moved."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from library.surrealserver import PASSWORD, running_surreal
from tests.e2e.conftest import EXAMPLES, PostRoom, gone, until
from tests.e2e.test_postgres import no_secret
from tests.prefork import prefork

ECHO = str(EXAMPLES / "echo.toml")


def tasks(room: PostRoom, *words: str) -> list[tuple[str, str]]:
    found = room.json(*words, "task", "list", "--all")["tasks"]
    return [(task["text"], task["state"]) for task in found]


def kill(room: PostRoom) -> None:
    pid, nats = room.server["pid"], room.server["nats_pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid) and gone(nats))


@pytest.mark.requirement("store-contract-kept")
@pytest.mark.timeout(120)
def test_a_post_room_with_tasks_in_surrealdb_goes_on_after_sigkill(room: PostRoom):
    folder = room.scratch / "tasks"
    room.env["POSTROOM_TASK_STORE"] = f"surrealdb+file://{folder}"
    room.up()
    room.run("spawn", ECHO)
    assert "you said: work" in room.run("delegate", "@echo", "work", "--wait")
    assert tasks(room) == [("work", "completed")]
    assert (folder / "default" / "data").exists()
    waiting = room.json("delegate", "@echo", "more")["id"]
    kill(room)

    room.up()
    assert "you said: more" in room.run("task", "watch", waiting)
    assert tasks(room) == [("more", "completed"), ("work", "completed")]
    other = PostRoom(room.scratch / "other" / "state", room.scratch)
    other.state.parent.mkdir()
    other.env["POSTROOM_TASK_STORE"] = room.env["POSTROOM_TASK_STORE"]
    refused = other.call("up", "--port", "0", "--nats-port", "0")
    assert "is open in the process with pid" in refused.stderr
    room.run("down")


@pytest.mark.slow
@pytest.mark.requirement("store-contract-kept")
@pytest.mark.timeout(240)
def test_rebuild_backup_and_a_change_of_the_place_keep_the_tasks(room: PostRoom):
    """Also of a second organisation, and over a server."""
    room.env["POSTROOM_TASK_STORE"] = f"surrealdb+file://{room.scratch / 'tasks'}"
    secret = room.scratch / "passphrase"
    secret.write_text("correct horse\n")
    backup, words = str(room.scratch / "backup"), ("--passphrase-file", str(secret))
    room.up()
    room.run("org", "create", "acme")
    for org in ((), ("--org", "acme")):
        room.run(*org, "spawn", ECHO)
        room.run(*org, "delegate", "@echo", f"of {org}", "--wait")
    ours, theirs = tasks(room), tasks(room, "--org", "acme")
    assert ours != theirs
    room.run("backup", backup, *words)
    room.run("down")
    room.run("admin", "rebuild")

    other = PostRoom(room.scratch / "other" / "state", room.scratch)
    other.state.parent.mkdir()
    other.env["POSTROOM_TASK_STORE"] = f"surrealdb+file://{room.scratch / 'restored'}"
    other.run("restore", backup, *words)
    with running_surreal() as server:
        password = room.scratch / "password"
        password.write_text(f"{PASSWORD}\n")
        places = [
            (room, {}),
            (other, {}),
            (
                room,
                {
                    "POSTROOM_TASK_STORE": server.url(password=""),
                    "POSTROOM_TASK_STORE_PASSWORD_FILE": str(password),
                },
            ),
            (room, {"POSTROOM_TASK_STORE": ""}),
        ]
        for one, env in places:
            one.env |= env
            if not one.env["POSTROOM_TASK_STORE"]:
                del one.env["POSTROOM_TASK_STORE"]
            one.up()
            assert (tasks(one), tasks(one, "--org", "acme")) == (ours, theirs)
            assert no_secret(one)
            one.run("down")
        assert any("a2a_tasks" in asked for asked in server.asked)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "store, said",
    [
        ("surrealdb+ws://db.example/ns", "could be read on its way"),
        ("surrealdb+mem://", "both have to last equally long"),
        ("mongodb://x", "not the address of a SurrealDB"),
        pytest.param(
            "surrealdb+ws://u:hidden-word@127.0.0.1:1/ns",
            "does not answer",
            marks=[pytest.mark.slow, pytest.mark.timeout(120)],  # a start waits for it
        ),
    ],
)
def test_a_store_of_tasks_that_cannot_be_used_is_said_at_the_start(
    room: PostRoom, tmp_path: Path, store: str, said: str
):
    room.env["POSTROOM_TASK_STORE"] = store
    words = ["--state", str(room.state), "up", "--port", "0", "--nats-port", "0"]
    refused = prefork().run(words, room.env, None, 90.0)
    assert refused.returncode != 0
    assert said in refused.stderr
    assert "hidden-word" not in refused.stderr + room.control_log if room.state.exists() else True
