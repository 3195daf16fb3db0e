"""The life of a worker as its author sees it: started or told why not, loaded anew, removed, cleaned up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.errors import EXIT_CODES, Conflict, InvalidTemplate
from tests.e2e.conftest import PostRoom, running_room

CONFLICT, INVALID = EXIT_CODES[Conflict], EXIT_CODES[InvalidTemplate.__mro__[1]]  # ty: ignore[invalid-argument-type]
TEMPLATE = """
[worker]
name = "{nick}"
project = "demo"
[workstation]
command = ["python3", "/opt/agent/agent.py"]
files = ["agent.py"]
"""
ANSWERS = """
import json, sys
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "task":
        print(json.dumps({"type": "complete", "task": line["id"], "text": "TEXT"}), flush=True)
"""
WAITS = "import sys\nsys.stdin.read()\n"


@pytest.fixture(scope="module")
def room() -> Iterator[PostRoom]:
    """One post room for all tests here; each uses names of its own."""
    with running_room() as room:
        yield room


def write(room: PostRoom, nick: str, agent: str, *more: str) -> Path:
    return Path(room.template("\n".join((TEMPLATE.format(nick=nick), *more)), nick, agent=agent))


# ── spawn ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_an_agent_that_ends_at_once_is_told_with_its_last_words(room: PostRoom) -> None:
    path = write(room, "broken", "def f():\n    raise ValueError('boom \\x1b[31m')\nf()\n")

    said = room.run("spawn", str(path), status=1)

    assert said.startswith("spawned @broken ")
    assert "@broken ended at once: exit code 1" in room.stderr
    assert "    |     raise ValueError" in room.stderr
    assert "ValueError: boom" in room.stderr
    assert "postroom restart broken" in room.stderr
    assert room.worker("broken")["state"] == "failed"


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_who_does_not_want_to_wait_is_not_told(room: PostRoom) -> None:
    path = write(room, "hasty", "import sys; sys.exit(3)")

    room.run("spawn", str(path), "--detach")

    assert room.await_state("hasty", "failed")["detail"] == "exit code 3"


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_an_agent_that_says_all_it_has_to_say_and_ends_has_started(room: PostRoom) -> None:
    agent = "import json; print(json.dumps({'type': 'post', 'text': 'all'}), flush=True)"

    room.run("spawn", str(write(room, "brief", agent)))

    room.await_state("brief", "exited")


def test_an_agent_that_neither_reads_nor_says_anything_has_started(room: PostRoom) -> None:
    room.run("spawn", str(write(room, "mute", "import signal; signal.pause()")))

    assert room.worker("mute")["state"] == "idle"


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_what_cannot_start_is_refused_before_there_is_a_post_room(room: PostRoom) -> None:
    path = write(room, "nowhere", WAITS)
    path.write_text(path.read_text().replace('"python3", "', '"no-such-program", "'))
    absent = room.scratch / "absent"

    done = subprocess.run(
        [*room.command()[:-1], str(absent), "spawn", str(path)],
        capture_output=True,
        text=True,
        env=room.env,
        timeout=60,
        check=False,
    )

    assert done.returncode == INVALID
    assert "there is no program 'no-such-program'" in done.stderr
    assert not absent.exists()


@pytest.mark.requirement("worker-spawn-all-or-nothing")
def test_a_credential_must_be_there_and_its_host_allowed(room: PostRoom) -> None:
    path = write(room, "keyed", WAITS, "[overrides]", 'credentials = ["model"]')

    room.run("spawn", str(path), status=INVALID)
    assert "postroom credential add model --host HOST" in room.stderr

    room.run("credential", "add", "model", "--host", "api.example.com", given="secret")
    room.run("spawn", str(path), status=INVALID)
    assert 'egress = ["https://api.example.com"]' in room.stderr

    path.write_text(path.read_text() + '\negress = ["api.example.com"]\n')
    room.run("spawn", str(path))


def test_a_folder_that_every_sandbox_shows_may_be_named(room: PostRoom) -> None:
    agent = "import os, sys\nassert os.listdir('/usr/share')\nsys.stdin.read()"

    room.run("spawn", str(write(room, "reader", agent, '[compute]\nread_only = ["/usr/share"]')))


def test_no_wall_is_said_once(room: PostRoom) -> None:
    said = room.run("spawn", str(write(room, "bare", WAITS)), "--sandbox", "none")

    assert said.endswith(", sandbox none\n")


# ── restart ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("worker-restart-reloads")
def test_a_restart_takes_template_and_files_anew_and_keeps_the_rest(room: PostRoom) -> None:
    path = write(room, "grower", ANSWERS.replace("TEXT", "old"))
    room.run("spawn", str(path))
    uid = room.worker("grower")["uid"]
    room.run("stop", "grower")
    waiting = room.json("delegate", "@grower", "when you are back")["id"]
    path.with_name("agent.py").write_text(ANSWERS.replace("TEXT", "new"))
    path.write_text(path.read_text() + '\nskills = ["growing"]\n')

    said = room.run("restart", "grower")

    assert said.endswith("; grower.toml changed: skills, file agent.py\n")
    assert "new" in room.run("task", "show", waiting) or "new" in room.run("task", "watch", waiting)
    assert room.worker("grower")["uid"] == uid
    assert room.run("restart", "grower").endswith("; grower.toml has not changed\n")


@pytest.mark.requirement("worker-restart-reloads")
def test_a_restart_that_cannot_take_the_template_leaves_the_worker_as_it_is(
    room: PostRoom,
) -> None:
    path = write(room, "steady", WAITS)
    room.run("spawn", str(path))
    pid, text = room.worker("steady")["pid"], path.read_text()

    for changed, status in (
        (text.replace("command", "comand"), INVALID),
        (text.replace('"steady"', '"other"'), CONFLICT),
        (text.replace('"demo"', '"elsewhere"'), CONFLICT),
    ):
        path.write_text(changed)
        room.run("restart", "steady", status=status)
        assert "try: " in room.stderr
    path.unlink()
    room.run("restart", "steady", status=INVALID)
    assert "postroom restart steady --same" in room.stderr
    assert room.worker("steady")["pid"] == pid

    assert room.run("restart", "steady", "--same").startswith("restarted @steady, ")
    assert room.worker("steady")["pid"] != pid


def test_a_restart_of_what_ends_at_once_says_so(room: PostRoom) -> None:
    path = write(room, "fallen", WAITS)
    room.run("spawn", str(path))
    path.with_name("agent.py").write_text("raise SystemExit('not today')")

    room.run("restart", "fallen", status=1)

    assert "not today" in room.stderr


# ── remove, prune ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("worker-restart-reloads")
def test_a_worker_with_open_tasks_is_not_removed_without_a_word(room: PostRoom) -> None:
    room.run("spawn", str(write(room, "busy", WAITS)))
    room.run("delegate", "@busy", "never done")

    room.run("remove", "busy", status=CONFLICT)
    assert "@busy has 1 open task" in room.stderr
    assert "postroom remove busy --yes" in room.stderr

    room.run("remove", "busy", "--yes")
    assert "busy" not in [worker["nick"] for worker in room.json("status")["workers"]]


@pytest.mark.slow
@pytest.mark.requirement("worker-restart-reloads")
def test_what_removed_workers_have_left_is_deleted_when_somebody_says_so(room: PostRoom) -> None:
    folders = {}
    for nick in ("kept", "purged", "left"):
        room.run("spawn", str(write(room, nick, WAITS)))
        folders[nick] = room.state / "workers" / room.worker(nick)["uid"]
        (folders[nick] / "workspace" / "closed").mkdir(mode=0o500)
        (folders[nick] / "workspace" / "out").symlink_to(room.scratch)
    room.run("remove", "purged", "--purge")
    room.run("remove", "left")
    assert [folders[nick].exists() for nick in folders] == [True, False, True]

    assert f"@left  0.0 MiB  {folders['left']}" in room.run("prune", "--dry-run")
    room.run("prune", status=CONFLICT)
    assert folders["left"].exists()

    room.run("prune", "--yes")
    assert [folders[nick].exists() for nick in folders] == [True, False, False]
    assert room.run("prune").endswith("removed workers have left nothing\n")
    assert list(room.scratch.iterdir())
