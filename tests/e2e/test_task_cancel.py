"""Agents behind the wall that heed no cancel: interrupted first, killed after the grace of their template."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import PostRoom, running_room, until
from tests.e2e.test_coding_agents import CODER

GRACE = 1

JSONL = """
import json, sys
for text in sys.stdin:
    line = json.loads(text)
    if line["type"] != "task":
        continue
    print(json.dumps({"type": "artifact", "text": "begun"}), flush=True)
    while line["text"] == "for ever":
        sys.stdin.readline()
    print(json.dumps({"type": "complete", "text": "done"}), flush=True)
"""

TEXT = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
said = sys.stdin.read().strip()
subprocess.run(["postroom-agent", "update", "begun"], check=True)
while said == "for ever":
    time.sleep(60)
print("done")
"""

TEMPLATE = """
[worker]
name = "{name}"
cancel_grace = {grace}
[workstation]
command = ["python3", "/opt/agent/{name}.py"]
adapter = "{adapter}"
files = ["{name}.py"]
"""


@pytest.fixture(scope="module")
def room() -> Iterator[PostRoom]:
    with running_room() as found:
        yield found


@pytest.mark.requirement("task-queue-keeps-order")
@pytest.mark.parametrize(
    "adapter, program, stuck, after",
    [
        ("jsonl", JSONL, "for ever", "quick"),
        ("text", TEXT, "for ever", "quick"),
        ("claude", CODER.read_text(), "DEAF", "RECALL"),
    ],
)
def test_an_agent_that_heeds_no_cancel_is_killed_after_the_grace_of_its_template(
    room: PostRoom, adapter: str, program: str, stuck: str, after: str
):
    name = f"deaf-{adapter}"
    with room.client() as client:
        if name in [worker["nick"] for worker in client.workers()]:
            client.remove(name)  # of an earlier try
    template = TEMPLATE.format(name=name, adapter=adapter, grace=GRACE)
    template += "instructions = false\n[sidecar]\n" if adapter == "claude" else ""
    room.run("spawn", room.template(template, name, **{name: program}))
    task = room.json("delegate", f"@{name}", stuck)["id"]
    with room.client() as client:
        if adapter == "claude":
            until(lambda: any(e["type"] == "text" for e in client.newest_events(name, limit=50)))
        else:
            until(lambda: len(client.task_events(task)) > 1)  # the agent has it
        behind = client.delegate(after, to=f"@{name}")["id"]

        canceled = client.cancel_task(task, reason="enough", timeout=15)

        assert canceled["state"] == "canceled"
        assert canceled["status_text"] == "the agent did not stop within 1 s and was ended"
        states = [event["state"] for event in client.task_events(task)]
        assert [state for state in states if state != "working"] == ["canceled"]
        assert client.await_task(behind, "final", 20)["state"] == "completed"
