"""An agent that never confirms its messages, as its sender and a person see it."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import PostRoom, until

# Does its tasks, and reads its messages without a word.
DEAF = """
import json, sys
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "task":
        print(json.dumps({"type": "complete", "text": "did " + line["text"]}), flush=True)
"""
TEMPLATE = """
[worker]
name = "deaf"
[workstation]
command = ["python3", "/opt/agent/deaf.py"]
files = ["deaf.py"]
patience = 1
"""


@pytest.mark.requirement("task-queue-keeps-order")
@pytest.mark.requirement("sidecar-message-handed")
def test_an_agent_that_never_confirms_does_its_tasks_and_its_sender_and_status_say_what_it_lacks(
    room: PostRoom,
) -> None:
    room.up()
    room.run("spawn", room.template(TEMPLATE.replace("patience = 1", ""), "deaf", deaf=DEAF))
    room.run("send", "@deaf", "held", "--wait", "delivered")
    waits = room.json("send", "@deaf", "waits")["id"]

    assert "did it" in room.run("delegate", "@deaf", "it", "--wait")
    with room.client() as client:
        assert client.message(waits)["state"] == "accepted"
    room.run("remove", "deaf")

    room.run("spawn", room.template(TEMPLATE, "deaf", deaf=DEAF))
    first, second = [room.json("send", "@deaf", text)["id"] for text in ("one", "two")]
    for message in (first, second):
        until(lambda message=message: "not confirmed for 1 s" in room.run("receipt", message))
    assert (
        f"has not confirmed message {first[:8]} from @root for 1 s" in room.worker("deaf")["detail"]
    )

    room.run("restart", "deaf")
    assert "did more" in room.run("delegate", "@deaf", "more", "--wait")
    with room.client() as client:
        assert [client.message(each)["state"] for each in (first, second)] == ["delivered"] * 2
