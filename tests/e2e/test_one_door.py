"""Everything that one worker does goes through its door: the audit log explains each act, and tells no content."""

from __future__ import annotations

import json
import secrets
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest

from tests.e2e.conftest import EXAMPLES, PostRoom, until
from tests.e2e.outside import ModelServer, model_server

# Does its task in four ways; what it says, stores and asks begins with the mark that it was given.
PROGRAM = """
import json, os, sys, urllib.request
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def say(**line):
    print(json.dumps(line), flush=True)

def ask(url, data, method, **headers):
    request = urllib.request.Request(url, data, headers, method=method)
    with DIRECT.open(request, timeout=30) as answer:
        return answer.read()

for line in map(json.loads, sys.stdin):
    if line["type"] == "task":
        mark = line["text"]
        print(mark + "-stderr", file=sys.stderr, flush=True)
        say(type="send", to="@echo", text=mark + "-message")
        blob = ask(os.environ["POSTROOM_API"] + "/v1/blobs", (mark + "-blob").encode(), "PUT")
        out = os.environ["POSTROOM_EGRESS"] + "/https/localhost:PORT/v1/messages?q=" + mark + "-query"
        body = json.dumps({"content": mark + "-body"}).encode()
        ask(out, body, "POST", **{"x-api-key": "dummy", "x-mark": mark + "-header"})
        say(type="artifact", task=line["id"], url=json.loads(blob)["url"], filename=mark + "-file")
        say(type="complete", task=line["id"], text=mark + "-done")
"""

TEMPLATE = """
[worker]
name = "scout"

[workstation]
command = ["python3", "/opt/agent/agent.py"]
files = ["agent.py"]

[overrides]
egress = ["localhost:{port}"]
credentials = ["model"]
"""


@pytest.fixture
def outside() -> Iterator[ModelServer]:
    with tempfile.TemporaryDirectory(prefix="outside-") as folder, model_server(Path(folder)) as it:
        yield it


MOST_OF_A_FRAME = 400
MOST_OF_A_GREETING = 4096
"""Bytes of a frame besides its headers and payload, and of CONNECT."""


class Commands:
    """Collects the command line of every process, again and again, while the block runs."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(0.02):
            for entry in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    self.seen.add(entry.read_bytes())


@pytest.mark.timeout(120)
@pytest.mark.requirement("audit-acts-explained")
def test_the_log_explains_each_act_of_a_worker_and_tells_no_content(
    room: PostRoom, outside: ModelServer
) -> None:
    mark, secret = f"mark{secrets.token_hex(8)}", f"sk-{secrets.token_hex(16)}"
    room.env |= {
        "POSTROOM_EGRESS_ALLOW_PRIVATE": f"localhost:{outside.port}",
        "POSTROOM_EGRESS_CA": str(outside.ca_file),
    }
    room.up()
    place = ("--host", f"localhost:{outside.port}", "--header", "x-api-key: {secret}")
    with Commands() as commands:
        room.run("credential", "add", "model", *place, given=secret)
        room.run("spawn", str(EXAMPLES / "echo.toml"))
        program = PROGRAM.replace("PORT", str(outside.port))
        room.run("spawn", room.template(TEMPLATE.format(port=outside.port), "scout", agent=program))
        with room.client() as client:
            task = client.delegate(to="@scout", text=mark)["id"]
            until(lambda: client.task(task)["final"])
            done = client.task(task)
            echo = client.worker("echo")["uid"]
        room.run("stop", "scout")
    acts = _acts(room, "scout")
    uid = acts[0]["worker"]

    assert done["state"] == "completed"
    assert outside.requests[0][1]["x-api-key"] == secret
    # The message by which it got the task, and the echo's answer.
    given = [a["message"] for a in acts if a.get("subject", "").startswith(f"worker.{uid}.inbox.")]
    assert given[0] == done["request"]
    # Its task, from the first record to the last.
    states = [a["subject"].rpartition(".")[2] for a in acts if a.get("task") == task]
    assert states[0] in ("submitted", "working")  # a worker that is free begins at once
    assert states[-1] == "completed"
    # What it did for it: a message to another; a blob, then a request to the outside.
    [sent] = [a for a in acts if a.get("subject") == f"worker.{echo}.inbox.{uid}"]
    assert (sent["direction"], sent["verdict"]) == ("out", "allowed")
    assert sent["message"]
    asked = [act for act in acts if act.get("verb") in {"PUT", "POST"}]
    url = f"https://localhost:{outside.port}/v1/messages"
    assert [(a["protocol"], a["direction"], a["url"], a.get("status")) for a in asked] == [
        ("http", "out", "http://postroom/v1/blobs", None),
        ("http", "in", "http://postroom/v1/blobs", 201),
        ("egress", "out", url, None),
        ("egress", "in", url, 200),
    ]
    caused = [(act.get("cause_task"), act.get("cause_exact")) for act in (sent, *asked)]
    assert caused == [(task, True)] * 5
    # What carried all this is counted; sizes of lines and counts come to what the connections passed, but for frames.
    every = _acts(room, "scout", "--all", "--limit", "0")
    assert len(every) > len(acts)
    assert not any(act.get("subject", "").startswith(("_I.", "$JS.")) for act in acts)
    assert sum(act["verb"] == "plumbing" for act in every) >= 2
    for connection in {act["connection"] for act in every if act.get("protocol") == "nats"}:
        *lines, close = [act for act in every if act["connection"] == connection]
        assert close["verb"] == "close"
        frames = len(lines) + sum(line.get("count", 0) for line in lines)
        told = sum(line.get("size", 0) for line in lines)
        assert told <= close.get("size", 0) < told + frames * MOST_OF_A_FRAME + MOST_OF_A_GREETING
    # Every line is of it alone, of a connection that was opened and closed.
    opened = {act["connection"] for act in acts if act.get("verb") == "open"}
    assert {act["connection"] for act in acts} == opened

    logs = {
        path.name: path.read_bytes()
        for path in (*(room.state / "logs").glob("*.*"), room.state / "nats" / "nats-server.log")
    }
    assert {"audit.jsonl", "control.log"} <= set(logs)
    for hidden in (mark.encode(), secret.encode(), b"Hello from"):
        assert [name for name, content in logs.items() if hidden in content] == []
        assert [line for line in commands.seen if hidden in line] == []
    assert any(b"postroom" in line for line in commands.seen)


def _acts(room: PostRoom, nick: str, *options: str) -> list[dict[str, Any]]:
    """What the log says that a worker did at its door, oldest first."""
    said = room.run("audit", "--json", "--worker", f"@{nick}", *options)
    records = [json.loads(line) for line in said.splitlines()]
    return [record for record in records if record["by"] != "api"]
