"""An agent that Postroom does not run, with a real post room, a real worker, and a control plane that is killed."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import PostRoom, gone, until

WAIT = 20.0

# Gives whoever translates each message as a task, and replies with the result.
ASKER = """
import json, subprocess, sys
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "message":
        done = subprocess.run(
            ["postroom-agent", "delegate", "--skill", "translate", line["text"], "--wait"],
            capture_output=True, text=True,
        )
        text = f"{done.returncode} {done.stdout}".strip()
        print(json.dumps({"type": "reply", "to": line["id"], "text": text}), flush=True)
"""
TEMPLATE = """
[worker]
name = "asker"
[workstation]
command = ["python3", "/opt/agent/asker.py"]
files = ["asker.py"]
"""
SKILL = {"id": "translate", "name": "translate", "description": "Translates.", "tags": ["text"]}


class Otto:
    """The outsider: a key, and HTTP."""

    def __init__(self, room: PostRoom, api: httpx2.Client) -> None:
        self.room = room
        self._api = api

    def call(self, method: str, path: str, **more: Any) -> dict[str, Any]:
        answer = self._api.request(method, self.room.server["url"] + "/v1" + path, **more)
        assert answer.is_success, answer.text
        return answer.json()

    def inbox(self) -> list[dict[str, Any]]:
        query = {"after": 0, "unread": "true", "wait": WAIT}
        return self.call("GET", "/inbox", params=query)["messages"]

    def say(self, task: str, state: str, **more: Any) -> dict[str, Any]:
        return self.call("POST", f"/tasks/{task}/status", json={"state": state, **more})


@contextmanager
def outsider(room: PostRoom) -> Generator[Otto]:
    card = room.scratch / "otto.json"
    card.write_text(json.dumps({"skills": [SKILL]}))
    made = room.json("agents", "add", "otto", "--external", "--card", str(card))
    headers = {"Authorization": f"Bearer {made['key']['key']}"}
    with httpx2.Client(headers=headers, timeout=2 * WAIT) as api:
        yield Otto(room, api)


@pytest.mark.requirement("outside-takes-tasks")
@pytest.mark.requirement("inbox-confirmed-only")
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_agent_elsewhere_works_for_a_worker_and_across_a_kill_of_the_control_plane(
    room: PostRoom,
) -> None:
    room.up()
    room.run("spawn", room.template(TEMPLATE, "asker", asker=ASKER))
    with outsider(room) as otto:
        result: list[str] = []
        asking = threading.Thread(
            target=lambda: result.append(room.run("send", "@asker", "one", "--wait", "answered"))
        )
        asking.start()
        (mail,) = otto.inbox()
        assert (mail["text"], mail["from"]["nick"]) == ("one", "asker")
        otto.say(mail["task"], "working", text="looking it up")
        artifact = {"name": "german", "text": "eins"}
        otto.call("POST", f"/tasks/{mail['task']}/artifacts", json=artifact)
        otto.say(mail["task"], "completed")
        asking.join(2 * WAIT)
        assert [text.split() for text in result] == [["0", "eins"]]

        # Handed over and begun, but not confirmed: then the control plane dies.
        sent = room.json("send", "@otto", "remember me")
        task = room.json("delegate", "@otto", "work on")["id"]
        given = {mail["text"]: mail for mail in otto.inbox()}
        assert [given[text]["redelivered"] for text in ("remember me", "work on")] == [False, False]
        seq = otto.say(task, "working")["seq"]
        pids = [room.server["pid"], room.server["nats_pid"]]
        os.kill(pids[0], signal.SIGKILL)
        until(lambda: all(gone(pid) for pid in pids))
        room.up()

        again = {mail["text"]: mail for mail in otto.inbox()}
        assert (again["remember me"]["id"], again["remember me"]["redelivered"]) == (
            sent["id"],
            True,
        )
        assert again["work on"]["redelivered"]
        # Its key and its task are what they were: nobody took the task away, and nothing is begun again.
        view = otto.call("GET", f"/tasks/{task}")
        assert (view["state"], view["seq"], view["attempt"]) == ("working", seq, 1)
        assert otto.say(task, "completed", text="done", seq=seq)["final"]
        acked = otto.call("POST", "/inbox/ack", json={"ids": [sent["id"]], "state": "seen"})
        assert [mail["state"] for mail in acked["messages"]] == ["seen"]
        assert room.json("receipt", sent["id"])["state"] == "seen"
