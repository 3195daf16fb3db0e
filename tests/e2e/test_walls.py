"""Real workers behind each wall: what the agent can do, what it cannot, and what a person is shown of it."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.sandbox import confine
from postroom.sandbox.landlock import OLDEST
from tests.e2e.conftest import EXAMPLES, PostRoom, gone, running_room, until
from tests.e2e.processes import below

landlock = pytest.mark.skipif(
    confine.version() < OLDEST, reason=f"the kernel has no Landlock of version {OLDEST}"
)
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the network of netns")
each_wall = pytest.mark.parametrize(
    "wall, level",
    [
        pytest.param("bubblewrap", "enforced"),
        pytest.param("netns", "enforced", marks=root),
        pytest.param("landlock", "partial", marks=landlock),
    ],
)

SPY = """
import http.client, json, os, sys
found = {"environ": [], "api": 0, "reached": []}
at = os.getppid()
def look(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return
    found["environ"].append(path)
for name in ("environ", "mem", "maps"):
    look(f"/proc/{at}/{name}")
try:
    for name in os.listdir(f"/proc/{at}/fd"):
        look(f"/proc/{at}/fd/{name}")
except OSError:
    pass
place = os.environ["POSTROOM_API"].removeprefix("http://").rstrip("/")
api = http.client.HTTPConnection(place, timeout=10)
api.request("GET", "/a2a/agents/nobody/.well-known/agent-card.json")
found["api"] = api.getresponse().status
for port in sys.argv[2:]:
    try:
        http.client.HTTPConnection("127.0.0.1", int(port), timeout=2).connect()
        found["reached"].append(port)
    except OSError:
        pass
try:
    open(sys.argv[1]).close()
    found["reached"].append("server.json")
except OSError:
    pass
with open("found.part", "w") as file:
    json.dump(found, file)
os.rename("found.part", "found.json")
for line in sys.stdin:
    print("you said: " + line, end="", flush=True)
"""
TEMPLATE = """
[worker]
name = "spy"
[workstation]
command = ["python3", "/opt/agent/spy.py", "{file}", "{http}", "{nats}"]
adapter = "text"
files = ["spy.py"]
[overrides]
file = ""
http = ""
nats = ""
"""


SLEEPER = """
[worker]
name = "sleeper"
[workstation]
command = ["sleep", "600"]
"""


@pytest.fixture(scope="module")
def room() -> Iterator[PostRoom]:
    """One post room for all tests here; each uses names of its own."""
    with running_room() as room:
        yield room


@pytest.mark.requirement("wall-sidecar-closed")
@each_wall
def test_an_agent_works_and_sees_neither_its_sidecars_secrets_nor_the_post_room(
    room: PostRoom, wall: str, level: str
) -> None:
    http = room.server["url"].rpartition(":")[2].rstrip("/")
    values = {"file": str(room.state / "server.json"), "http": http, "nats": _nats_port(room)}
    words = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    template = room.template(TEMPLATE, f"spy-{wall}", spy=SPY)

    said = room.run("spawn", template, "--name", f"spy-{wall}", "--sandbox", wall, *words)

    assert f"sandbox {wall}: {level}" in said
    answered = room.run("send", "--wait", "answered", f"@spy-{wall}", "hello")
    worker = room.worker(f"spy-{wall}")
    workspace = room.state / "workers" / worker["uid"] / "workspace"
    assert answered.endswith("hello\n")
    assert worker["sandbox"] == {"provider": wall, "level": level}
    found = json.loads((workspace / "found.json").read_text())
    assert found["environ"] == []
    assert found["api"] in {200, 404}
    assert found["reached"] == []
    room.run("stop", f"spy-{wall}")
    assert room.worker(f"spy-{wall}")["sandbox"]["level"] == level


def _nats_port(room: PostRoom) -> str:
    return str(room.server["nats_url"]).rpartition(":")[2].rstrip("/")


@pytest.mark.requirement("sandbox-select-failclosed")
@landlock
def test_a_template_that_asks_for_a_weaker_wall_is_refused_until_a_person_agrees(
    room: PostRoom,
) -> None:
    echo = (EXAMPLES / "echo.toml").read_text()
    weaker = room.template(
        echo.replace("[workstation]", '[compute]\nsandbox = "landlock"\n[workstation]'), "weaker"
    )

    room.run("spawn", weaker, "--name", "weaker", status=6)
    assert "--isolation partial" in room.stderr

    assert "landlock: partial" in room.run(
        "spawn", weaker, "--name", "weaker", "--isolation", "partial"
    )


@pytest.mark.slow
@pytest.mark.requirement("sandbox-select-failclosed")
@landlock
def test_where_bubblewrap_fails_a_partial_wall_is_had_on_request_only(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: pivot_root' >&2\nexit 1\n")
    broken.chmod(0o755)
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        other = PostRoom(Path(scratch) / "state", Path(scratch))
        other.env["POSTROOM_BWRAP"] = str(broken)
        other.up()
        try:
            other.run("spawn", str(EXAMPLES / "echo.toml"), status=10)
            assert "--isolation partial" in other.stderr
            assert other.json("status")["workers"] == []

            other.run("spawn", str(EXAMPLES / "echo.toml"), "--isolation", "partial")
            other.await_state("echo", "idle")
            other.run("restart", "echo")
            assert other.worker("echo")["sandbox"] == {"provider": "landlock", "level": "partial"}
        finally:
            other.run("down")


@pytest.mark.requirement("wall-dies-with-post-room")
@pytest.mark.timeout(120)
def test_a_killed_post_room_leaves_nothing_of_a_worker(room: PostRoom) -> None:
    walls = ["bubblewrap"]
    walls += ["netns"] if os.geteuid() == 0 else []
    walls += ["landlock"] if confine.version() >= OLDEST else []
    server = room.server
    for wall in walls:
        nick = f"sleeper-{wall}"
        room.run("spawn", room.template(SLEEPER, "sleeper"), "--sandbox", wall, "--name", nick)
    inside = []
    for wall in walls:
        worker = room.await_state(f"sleeper-{wall}", "idle")
        pids = [worker["pid"], *(process.pid for process in below(worker["pid"]))]
        assert len(pids) >= 3
        inside += pids

    os.kill(server["pid"], signal.SIGKILL)

    until(lambda: all(gone(pid) for pid in (*inside, server["nats_pid"])))
    room.up()
