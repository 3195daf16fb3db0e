"""Workers over a limit of their template: a final state that says which, a task that fails with it, an alert."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.sandbox import cgroups
from tests.e2e.conftest import PostRoom, gone, until

# A task's text is Python, and it is done when that has run.
AGENT = """
import json, os, signal, sys
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "stop":
        break
    if line["type"] == "task":
        exec(line["text"])
        print(json.dumps({"type": "complete", "task": line["id"], "text": "done"}), flush=True)
"""
TEMPLATE = """
[worker]
name = "busy"
[workstation]
command = ["python3", "/opt/agent/agent.py"]
files = ["agent.py"]
[compute]
{limits}
"""
FILL = "open('large', 'wb').write(b'x' * (6 << 20)); open('more', 'wb').write(b'x' * (6 << 20)); signal.pause()"
CROWD = """
for _ in range(6):
    if not os.fork():
        kept = bytearray(b"x") * (64 << 20)
        signal.pause()
signal.pause()
"""


def spawn(room: PostRoom, limits: str) -> dict[str, Any]:
    if not (room.state / "server.json").exists():
        room.up()
    room.run("spawn", room.template(TEMPLATE.format(limits=limits), "busy", agent=AGENT))
    return room.await_state("busy", "idle")


def alerts(room: PostRoom) -> str:
    return str(room.json("status")["alerts"])


@pytest.mark.requirement("limit-exceeded-ended")
def test_a_worker_over_a_limit_fails_with_its_task_and_is_started_by_a_person_only(room: PostRoom):
    pid = spawn(room, "disk_mb = 8")["pid"]
    with room.client() as client:
        filling = client.delegate(FILL, to="@busy")["id"]
        waiting = client.delegate("pass", to="@busy")["id"]

        ended = client.await_task(filling, "final", 30)
        assert (ended["state"], ended["status_text"]) == (
            "failed",
            "disk limit of 8 MiB exceeded",
        )
        assert client.task(waiting)["state"] == "submitted"
    worker = room.await_state("busy", "failed")
    assert worker["detail"] == "disk limit of 8 MiB exceeded"
    assert gone(pid)
    until(lambda: "was ended: disk limit of 8 MiB exceeded" in alerts(room))

    room.run("down")
    room.up()
    worker = room.worker("busy")
    assert (worker["state"], worker["detail"]) == ("failed", "disk limit of 8 MiB exceeded")

    for name in ("large", "more"):
        (room.state / "workers" / worker["uid"] / "workspace" / name).unlink()
    room.run("restart", "busy")
    with room.client() as client:
        assert client.await_task(waiting, "final", 30)["state"] == "completed"


def test_the_memory_of_a_whole_worker_is_bounded(room: PostRoom):
    spawn(room, "memory_mb = 256\nprocesses = 100")
    with room.client() as client:
        task = client.delegate(CROWD, to="@busy")["id"]

        assert client.await_task(task, "final", 30)["status_text"] == (
            "memory limit of 256 MiB exceeded"
        )
    assert room.await_state("busy", "failed")["detail"] == "memory limit of 256 MiB exceeded"


@pytest.mark.requirement("limit-exceeded-ended")
@pytest.mark.slow
def test_time_goes_on_while_the_post_room_is_down_and_begins_anew_when_a_person_starts_it(
    room: PostRoom,
):
    spawn(room, "wall_seconds = 5")

    room.run("down")
    room.up()

    assert room.await_state("busy", "failed")["detail"] == "time limit of 5 s exceeded"
    room.run("restart", "busy")
    room.await_state("busy", "idle")


@pytest.mark.skipif(cgroups.find() is not None, reason="there are control groups on this machine")
def test_a_limit_that_nothing_keeps_is_named_at_the_spawn(room: PostRoom):
    room.up()

    room.run(
        "spawn", room.template(TEMPLATE.format(limits="cpu_percent = 50"), "busy", agent=AGENT)
    )

    assert "not enforced on this machine: compute.cpu_percent" in room.stderr
    assert room.worker("busy")["unenforced"] == ["cpu_percent"]
