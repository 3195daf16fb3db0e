"""A large result goes by reference: from a worker to a worker, and to the person; nothing holds it in memory."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.e2e.conftest import TEMPLATE, PostRoom, gone, until

MIB = 1024 * 1024

MAKER = """
import json, random, subprocess, sys
for line in map(json.loads, sys.stdin):
    if line["type"] == "task":
        with open("big.bin", "wb") as file:
            file.write(random.Random(7).randbytes(int(line["text"])))
        subprocess.run(["postroom-agent", "artifact", "--file", "big.bin"], check=True, stdout=2)
        print(json.dumps({"type": "complete"}), flush=True)
"""

FETCHER = """
import json, subprocess, sys
def say(**line):
    print(json.dumps(line), flush=True)
own = None
for line in map(json.loads, sys.stdin):
    if line["type"] == "task":
        own = line["id"]
        say(type="delegate", to="@maker", text=line["text"])
    elif line["type"] == "task_update" and line["final"]:
        (file,) = line["artifacts"][0]["files"]
        get = ["postroom-agent", "blob", "get", file["url"], "-o", "got.bin"]
        subprocess.run(get, check=True, stdout=2)
        say(type="artifact", task=own, name="passed on", **file)
        say(type="complete", task=own)
"""


def memory(pid: int) -> int:
    """Bytes that a process has had in memory at most."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"{pid} has no memory")


def sidecars() -> dict[int, int]:
    """Sidecars of this machine, with what each has had in memory."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            if b"postroom.sidecar" in words and b"-m" in words and b"bwrap" not in words[0]:
                found[int(place.name)] = memory(int(place.name))
        except (OSError, AssertionError):
            continue
    return found


def within(pid: int, ancestor: int) -> bool:
    """Whether a process descends from another."""
    while pid > 1:
        if pid == ancestor:
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return False
    return False


def spawned(room: PostRoom, name: str, program: str) -> Path:
    """A worker that waits for tasks; its workspace."""
    room.run("spawn", room.template(TEMPLATE.format(name=name), name, **{name: program}))
    room.await_state(name, "idle")
    return room.state / "workers" / room.worker(name)["uid"] / "workspace"


@pytest.mark.slow
@pytest.mark.requirement("task-stored-once")
@pytest.mark.timeout(120)
def test_a_large_artifact_reaches_another_worker_and_the_person_and_no_memory(room: PostRoom):
    room.up()
    made = spawned(room, "maker", MAKER)
    fetched = spawned(room, "fetcher", FETCHER)
    content = random.Random(7).randbytes(5 * MIB)

    result = room.run("delegate", "@fetcher", str(len(content)), "--wait")

    url = f"blob:sha256:{hashlib.sha256(content).hexdigest()}"
    assert result.strip() == url
    assert (fetched / "got.bin").read_bytes() == content
    (task,) = [
        t for t in room.json("task", "list", "--all")["tasks"] if t["worker"]["nick"] == "fetcher"
    ]
    shown = room.run("task", "show", task["id"])
    assert "file big.bin, 5.2 MB, application/octet-stream" in shown
    assert f"postroom blob get {url} -o big.bin" in shown
    target = room.scratch / "mine.bin"
    room.run("blob", "get", url, "-o", str(target))
    assert target.read_bytes() == content
    assert room.run("blob", "put", str(target)).strip() == url
    (listed,) = room.json("blob", "list")["blobs"]
    assert (listed["url"], listed["named"]) == (url, True)
    room.run("blob", "remove", url)
    room.run("blob", "get", url, "-o", str(target), status=4)

    # Whatever is loaded late is loaded by now.
    control = room.server["pid"]
    own = {pid: before for pid, before in sidecars().items() if within(pid, control)}
    assert len(own) == 2
    before = memory(control)

    room.run("delegate", "@fetcher", str(64 * MIB), "--wait")

    assert (made / "big.bin").stat().st_size == 64 * MIB
    assert memory(control) - before < 20 * MIB
    for pid, its in own.items():
        assert memory(pid) - its < 20 * MIB


@pytest.mark.requirement("blob-kept-by-hash")
def test_a_post_room_that_is_killed_in_an_upload_leaves_nothing_of_it(room: PostRoom):
    room.up()
    server = room.server
    address = urlsplit(server["url"])
    head = (
        f"PUT /v1/blobs/{'0' * 64} HTTP/1.1\r\nHost: {address.netloc}\r\n"
        f"Authorization: Bearer {server['token']}\r\nContent-Length: {8 * MIB}\r\n\r\n"
    )
    new = room.state / "blobs" / "new"
    with socket.create_connection((address.hostname, address.port)) as upload:
        upload.sendall(head.encode() + bytes(4 * MIB))
        until(lambda: any(path.stat().st_size >= MIB for path in new.iterdir()))
        os.kill(server["pid"], signal.SIGKILL)
        until(lambda: gone(server["pid"]))
    assert list(new.iterdir())

    room.up()

    assert [path for path in (room.state / "blobs").rglob("*") if path.is_file()] == []
