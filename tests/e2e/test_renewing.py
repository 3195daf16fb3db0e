"""Tasks while the credentials of those who ask and of those who work are renewed, again and again."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.conftest import PostRoom, until
from tests.e2e.taskwork import assert_all_ended, station

RENEWALS = 4

# What a program of `taskwork.AGENT` cannot do: it says how far it is, step by step.
STEPS = 20
HELPER = f"""
import json, sys, time

for line in sys.stdin:
    line = json.loads(line)
    if line["type"] == "task":
        for step in range({STEPS}):
            print(json.dumps(dict(type="progress", task=line["id"], text=f"step {{step}}")), flush=True)
            time.sleep(0.02)
        with open("notes", "a") as file:
            file.write(line["text"] + "\\n")
        print(json.dumps(dict(type="complete", task=line["id"], text="did " + line["text"])), flush=True)
"""


@pytest.mark.timeout(180)
@pytest.mark.requirement("identity-rotation-seamless")
@pytest.mark.slow
def test_tasks_flow_over_renewals_of_requester_and_worker_and_none_is_lost_or_done_twice(
    room: PostRoom,
):
    room.up()
    helper, lead = station(room, "helper", program=HELPER), station(room, "lead")
    for nick in ("helper", "lead"):
        room.await_state(nick, "idle")
    pids = {nick: room.worker(nick)["pid"] for nick in ("helper", "lead")}
    asked: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        with room.client() as client:
            while not stop.is_set():
                text = f"n{len(asked)}"
                task = client.delegate(f"pass {text}", to="@lead")["id"]
                asked.append(text)
                # The next when the helper has begun, so that a renewal meets tasks in every state.
                until(lambda task=task: client.task(task)["state"] != "submitted")

    with ThreadPoolExecutor(1) as threads:
        asking = threads.submit(ask)
        try:
            for _ in range(RENEWALS):  # each has every worker renew, and waits until all have
                assert room.json("keys", "rotate", "--account")["cut"] == []
        finally:
            stop.set()
        asking.result()
    with room.client() as client:
        until(lambda: all(task["final"] for task in client.tasks(limit=500)))

    assert len(asked) >= RENEWALS
    once = dict.fromkeys(asked, 1)
    assert Counter(helper.notes) == once
    told = [note.removeprefix("told did ") for note in lead.notes if note.startswith("told ")]
    assert Counter(told) == once
    found = assert_all_ended(room)
    assert len(found) == 2 * len(asked)
    for chronicle in found.values():
        assert {record.attempt for _, record, _ in chronicle.records} <= {0, 1}
        assert chronicle.states[-1] == "completed"
    assert {nick: room.worker(nick)["pid"] for nick in pids} == pids
