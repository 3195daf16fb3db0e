"""Workers on an OpenSandbox server, as a person has them: through the gateway's TLS address, and no other way."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from postroom.protocol import execd
from postroom.sandbox.opensandbox.remote import A2A_PORT, PORTS
from tests.cli.terminal import Terminal
from tests.e2e.conftest import DEADLINE, EXAMPLES, PostRoom, gone, until

ECHO = str(EXAMPLES / "echo.toml")
KEY = "k-5d2e90b7"
REPOSITORY = Path(__file__).parents[2]


class Server:
    """The double in a process of its own, which outlives the post room."""

    def __init__(self, url: str) -> None:
        self.url = url

    def state(self, **change: Any) -> dict[str, Any]:
        if change:
            return httpx.post(f"{self.url}/double", json=change, trust_env=False).json()
        return httpx.get(f"{self.url}/double", trust_env=False).json()

    @property
    def containers(self) -> list[dict[str, Any]]:
        return self.state()["containers"]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture
def server(room: PostRoom) -> Iterator[Server]:
    """The server, and a post room that is set up for it and not started."""
    gateway = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.sandbox.opensandbox.double", KEY, "127.0.0.1", str(gateway)],
        cwd=REPOSITORY,
        env=room.env,
        text=True,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    key = room.scratch / "opensandbox.key"
    key.write_text(f"{KEY}\n")
    room.env |= {
        "POSTROOM_OPENSANDBOX_URL": url,
        "POSTROOM_OPENSANDBOX_KEY_FILE": str(key),
        "POSTROOM_OPENSANDBOX_PYTHON": sys.executable,
        "POSTROOM_GATEWAY_LISTEN": f"127.0.0.1:{gateway}",
        "POSTROOM_GATEWAY_ADDRESS": f"localhost:{gateway}",
    }
    room.run("tls", "init", "--host", "localhost")
    try:
        yield Server(url)
    finally:
        process.terminate()
        process.wait(DEADLINE)
        process.stdout.close()


def secrets_of(room: PostRoom) -> list[str]:
    """What must be in no command line: the private keys of the post room, and the server's own."""
    keys = [path.read_text() for path in (room.state / "keys").rglob("*") if path.is_file()]
    return [KEY, *(word for text in keys for word in text.split('"') if word.startswith("S"))]


def card_of(room: PostRoom, nick: str) -> dict[str, Any]:
    """The card that a worker's own A2A server shows."""
    headers = {"Authorization": f"Bearer {room.server['token']}"}
    with httpx.Client(base_url=room.server["url"], headers=headers, trust_env=False) as api:
        answer = api.get(f"/v1/workers/{nick}/agent-card.json", timeout=20)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.slow
@pytest.mark.requirement("opensandbox-lifecycle")
def test_a_worker_answers_from_a_container_and_leaves_nothing_behind(
    room: PostRoom, server: Server
) -> None:
    room.up()
    room.run("spawn", ECHO, "--sandbox", "opensandbox")
    answer = room.run("send", "@echo", "over there", "--wait", "answered")
    assert "over there" in answer
    worker = room.worker("echo")
    assert worker["sandbox"] == {"provider": "opensandbox", "level": "enforced"}
    card = card_of(room, "echo")
    assert card["name"] == "echo"
    assert any(
        "GET proxy/44780/.well-known/agent-card.json" in line for line in server.state()["seen"]
    )
    room.run("restart", "echo")
    assert "again" in room.run("send", "@echo", "again", "--wait", "answered")
    assert len(server.containers) == 1
    audit = room.run("audit", "--json")
    assert '"verb": "open"' in audit or '"verb":"open"' in audit
    room.run("stop", "echo")
    assert server.containers == []
    seen = "\n".join(server.state()["seen"])
    assert "postroom.sidecar" in seen
    assert '"seed"' not in seen
    assert "BEGIN CERTIFICATE" not in seen  # the configuration goes by upload alone
    for secret in secrets_of(room):
        assert secret not in seen
    log = (room.state / "logs" / "control.log").read_text()
    assert KEY not in log


HANDS = r"""
import json, os, subprocess, sys

SEEN = "cat /proc/$PPID/cmdline; echo; cat /proc/net/tcp"

def do(*words, given=""):
    done = subprocess.run(["postroom-agent", *words], input=given, capture_output=True, text=True)
    return [done.returncode, done.stdout, done.stderr]

for line in sys.stdin:
    with open(f"/proc/{os.getppid()}/cmdline") as parent:
        said = {"parent": parent.read().replace(chr(0), " ")}
    said["run"] = do("run", "--", "sh", "-c", SEEN + "; exit 3")
    said["write"] = do("file", "write", "kept/note", given="by execd")
    said["read"] = do("file", "read", "kept/note")
    said["here"] = open("kept/note").read()
    said["secrets"] = os.listdir("/tmp/postroom/secrets")
    print(json.dumps(said), flush=True)
"""


@pytest.mark.slow
@pytest.mark.requirement("opensandbox-lifecycle")
def test_commands_and_files_are_execds_work_while_the_agents_pipes_are_the_sidecars(
    room: PostRoom, server: Server
) -> None:
    room.up()
    template = """
        [worker]
        name = "hands"
        [workstation]
        command = ["python3", "/opt/agent/hands.py"]
        adapter = "text"
        files = ["hands.py"]
    """
    room.run("spawn", room.template(template, hands=HANDS), "--sandbox", "opensandbox")
    answer = room.run("send", "@hands", "go", "--wait", "answered")
    said = json.loads(answer[answer.index("{") : answer.rindex("}") + 1])
    assert "postroom.sidecar" in said["parent"]
    code, out, err = said["run"]
    parent, _, sockets = out.partition("\n")
    assert (code, err) == (3, "")
    assert "execd.py" in parent
    assert [said["write"], said["read"]] == [[0, "", ""], [0, "by execd", ""]]
    assert said["here"] == "by execd"
    assert said["secrets"] == []  # taken by the sidecar before the agent exists
    gateway = int(room.env["POSTROOM_GATEWAY_LISTEN"].rpartition(":")[2])
    listening = ports_of(sockets) - {gateway}
    assert execd.PORT in listening
    own = listening - {execd.PORT}
    assert A2A_PORT in own
    assert own <= {A2A_PORT, *PORTS}
    assert not {execd.PORT, execd.EGRESS_PORT} & {A2A_PORT, *PORTS}


@pytest.mark.slow
@pytest.mark.requirement("terminal-one-at-a-time")
def test_a_persons_terminal_is_execds_and_ends_with_its_shell(
    room: PostRoom, server: Server
) -> None:
    room.up()
    template = """
        [worker]
        name = "hands"
        [workstation]
        command = ["python3", "/opt/agent/hands.py"]
        files = ["hands.py"]
        env = { MARK = "of the agent" }
        [sidecar]
    """
    agent = "import sys\nfor line in sys.stdin: pass\n"
    room.run("spawn", room.template(template, hands=agent), "--sandbox", "opensandbox")
    words = ("attach", "--raw", "@hands", "--state", str(room.state))
    with Terminal(*words, columns=91) as terminal:
        terminal.read_until("leave with Ctrl-]")
        terminal.type("tr '\\0' ' ' < /proc/$PPID/cmdline; echo; stty size; echo \"<$MARK>\"\n")
        terminal.read_until("/opt/double/execd.py")
        terminal.read_until("30 91")
        terminal.read_until("<of the agent>")
        terminal.type("exit 7\n")
        assert terminal.ended() == 7


def ports_of(sockets: str) -> set[int]:
    """Those that are listened on, in the kernel's table."""
    rows = [line.split() for line in sockets.splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}


@pytest.mark.slow
@pytest.mark.requirement("opensandbox-lifecycle")
def test_a_killed_post_room_takes_its_workers_back_and_removes_what_it_left(
    room: PostRoom, server: Server
) -> None:
    room.up()
    room.run("spawn", ECHO, "--sandbox", "opensandbox")
    (left,) = server.containers
    os.kill(room.server["pid"], signal.SIGKILL)
    until(lambda: gone(room.server["pid"]))
    room.run("up", "--detach", "--port", "0", "--nats-port", "0")
    assert "back" in room.run("send", "@echo", "back", "--wait", "answered")
    (present,) = server.containers
    assert present["id"] != left["id"]
    assert gone(left["pid"])


@pytest.mark.slow
@pytest.mark.requirement("opensandbox-lifecycle")
def test_a_worker_is_refused_where_the_egress_control_does_not_hold(
    room: PostRoom, server: Server
) -> None:
    server.state(enforcement="dns")
    room.up()
    room.run("spawn", ECHO, "--sandbox", "opensandbox", status=10)
    assert "its mode is dns" in room.stderr
    assert not any("files/upload" in line for line in server.state()["seen"])
    assert json.loads(room.run("status", "--json"))["workers"] == []
