"""Two post rooms: one delegates to a worker of the other, as to any agent of other people."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.conftest import PostRoom, gone, running_room, until

PAINTER = """
[worker]
name = "painter"
[workstation]
command = ["sh", "-c", "cat > said; cat said; grep -q red said || postroom-agent ask 'which colour?'"]
adapter = "text"
skills = ["paint"]
"""


@pytest.fixture(scope="module")
def other() -> Iterator[PostRoom]:
    """The other post room, with a worker."""
    with running_room() as room:
        room.run("spawn", room.template(PAINTER, "painter"))
        room.await_state("painter", "idle")
        yield room


@pytest.fixture
def here(other: PostRoom) -> Iterator[PostRoom]:
    """A post room that may call the other one, and has a key there."""
    with TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        room = PostRoom(Path(scratch) / "state", Path(scratch))
        place = other.server["url"].removeprefix("http://")
        room.env["POSTROOM_EGRESS_ALLOW_PRIVATE"] = place
        room.up()
        nick = f"partner-{os.urandom(4).hex()}"
        key = other.json("agents", "add", nick, "--external")["key"]["key"]
        room.run("credential", "add", "other", "--host", f"http://{place}", given=f"{key}\n")
        yield room
        room.run("down")


@pytest.mark.requirement("remote-tasks")
def test_a_task_for_the_other_survives_sigkill_here_and_is_one_task_there(
    here: PostRoom, other: PostRoom
):
    url = f"{other.server['url']}/a2a/painter"
    before = len(other.json("task", "list", "--all")["tasks"])
    given = here.json("delegate", url, "paint it", "--credential", "other")
    assert given["worker"]["nick"] == "painter"

    # At once: the request may be on its way, there, or not even taken.
    for state in ("submitted", "input-required"):
        pid = here.server["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: gone(pid))
        here.up()
        if state == "submitted":
            until(lambda: here.json("task", "show", given["id"])["state"] == "input-required")
    task = here.json("task", "show", given["id"])
    assert task["status_text"] == "which colour?"
    assert here.json("agents", "show", "@painter")["kind"] == "external"

    here.run("task", "answer", given["id"], "the red one")
    until(lambda: here.json("task", "show", given["id"])["final"])
    done = here.json("task", "show", given["id"])
    assert done["state"] == "completed"
    assert "the red one" in "".join(each["text"] for each in done["artifacts"])
    assert len(other.json("task", "list", "--all")["tasks"]) == before + 1


def test_a_worker_there_is_found_by_its_skill_and_canceled_from_here(
    here: PostRoom, other: PostRoom
):
    here.run(
        "agents",
        "add",
        "--a2a",
        f"{other.server['url']}/a2a/painter",
        "--name",
        "artist",
        "--credential",
        "other",
    )
    given = here.json("delegate", "--skill", "paint", "paint it")
    assert given["worker"]["nick"] == "artist"
    until(lambda: here.json("task", "show", given["id"])["state"] == "input-required")
    here.run("task", "cancel", given["id"])

    def there() -> bool:
        return other.json("task", "list", "--all")["tasks"][0]["state"] == "canceled"

    until(there)
