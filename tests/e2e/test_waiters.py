"""Many callers that wait: what each of them costs the post room, and that all hear of it."""

from __future__ import annotations

import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.conftest import PostRoom, until

TEMPLATE = """
[worker]
name = "mute"
[workstation]
command = ["cat"]
"""
KILOBYTE = 1000
WARM, WAITERS = 200, 1000


def memory(pid: int) -> int:
    """Bytes of a process that no file backs."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return 1024 * int(line.split()[1])


def connected(port: int) -> int:
    """Connections to a port of this machine that are established, and have nothing to read on its side."""
    ending = f":{port:04X}"
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(
        row[1].endswith(ending) and row[3] == "01" and row[4].endswith(":00000000") for row in rows
    )


@pytest.mark.slow
@pytest.mark.requirement("task-waiters-end")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("path", ["?wait=delivered&timeout=3600", "/stream"])
def test_a_caller_that_waits_takes_less_than_20_kb(room: PostRoom, path: str):
    room.up()
    room.run("spawn", room.template(TEMPLATE, "mute"), "--sandbox", "none")
    room.run("stop", "mute")
    server, url = room.server, urlsplit(room.server["url"])
    with room.client() as client, ExitStack() as stack:
        if path == "/stream":
            refs = [f"tasks/{client.delegate('?', to='@mute')['id']}" for _ in range(20)]
        else:
            refs = [f"messages/{client.send('@mute', '?')['id']}" for _ in range(20)]

        def wait(count: int) -> list[socket.socket]:
            opened = []
            for number in range(count):
                caller = socket.create_connection((url.hostname, url.port))
                opened.append(stack.enter_context(caller))
                head = f"GET /v1/{refs[number % 20]}{path} HTTP/1.1\r\nHost: {url.netloc}\r\n"
                caller.sendall(f"{head}Authorization: Bearer {server['token']}\r\n\r\n".encode())
            return opened

        wait(WARM)
        until(lambda: connected(url.port) >= WARM)
        client.status()  # answered after them
        before = memory(server["pid"])
        callers = wait(WAITERS)
        until(lambda: connected(url.port) >= WARM + WAITERS)
        client.status()
        each = (memory(server["pid"]) - before) / WAITERS

        assert each < 20 * KILOBYTE
        if path != "/stream":  # a stream has begun
            room.run("remove", "mute")  # its messages end as dead letters
        for caller in callers:
            caller.settimeout(30)
            assert caller.recv(12) == b"HTTP/1.1 200"
