"""A client that was following a task when the post room was killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import DEADLINE, TEMPLATE, PostRoom, gone, running_room, until

COUNTER = """
import json, sys

def say(**line):
    print(json.dumps(line), flush=True)

for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "task":
        for number in range(5):
            say(type="update", task=line["id"], text=f"step {number}")
        say(type="complete", task=line["id"], text="done")
"""


@pytest.fixture(scope="module")
def shared() -> Iterator[PostRoom]:
    with running_room() as room:
        yield room


class Caller:
    """A client with the operator's key."""

    def __init__(self, room: PostRoom, ref: str) -> None:
        self.room = room
        self.ref = ref

    def stream(self, last: str = "", **call: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """Id and result of each event, until the end of the stream or of the connection."""
        server = self.room.server
        headers = {
            "Authorization": f"Bearer {server['token']}",
            "A2A-Version": "1.0",
            **({"Last-Event-ID": last} if last else {}),
        }
        body = {"jsonrpc": "2.0", "id": 1, **call}
        url = f"{server['url']}/a2a/{self.ref}"
        with (
            httpx2.Client(timeout=DEADLINE) as http,
            http.stream("POST", url, json=body, headers=headers) as answer,
        ):
            number = ""
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    number = line[4:]
                elif line.startswith("data: "):
                    yield number, json.loads(line[6:])["result"]


def steps(events: list[tuple[str, dict[str, Any]]]) -> list[str]:
    found = []
    for _, event in events:
        message = event.get("statusUpdate", {}).get("status", {}).get("message")
        if message:
            found.append(message["parts"][0]["text"])
    return found


@pytest.mark.slow
@pytest.mark.requirement("client-stream-resumes")
@pytest.mark.requirement("task-request-runs-once")
def test_a_stream_goes_on_behind_the_last_event_after_the_post_room_was_killed(shared: PostRoom):
    room = shared
    room.run("spawn", room.template(TEMPLATE.format(name="counter"), "counter", counter=COUNTER))
    caller = Caller(room, "counter")
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "count"}]}
    sending: dict[str, Any] = {"method": "SendStreamingMessage", "params": {"message": message}}

    seen: list[tuple[str, dict[str, Any]]] = []
    for event in caller.stream(**sending):
        seen.append(event)
        if "step 1" in steps(seen):
            break
    task = seen[0][1]["task"]["id"]
    pids = room.server["pid"], room.server["nats_pid"]
    os.kill(pids[0], signal.SIGKILL)
    until(lambda: all(map(gone, pids)))  # nats-server ends with it
    room.up()

    # The same request again, from where it was: the same task, and only what is missing.
    rest = list(caller.stream(last=seen[-1][0], **sending))
    numbers = [int(number) for number, _ in seen + rest]
    assert numbers == sorted(set(numbers))
    assert {event["statusUpdate"]["taskId"] for _, event in rest} == {task}
    assert steps(rest)[-1] == "done"
    whole = list(caller.stream(last="0", **sending))
    assert [number for number, _ in whole] == [number for number, _ in seen[1:] + rest]
    assert steps(whole) == steps(seen + rest)
    last, call = seen[-1][0], {"method": "SubscribeToTask", "params": {"id": task}}
    assert list(caller.stream(last=last, **call)) == rest
