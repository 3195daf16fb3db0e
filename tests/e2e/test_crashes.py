"""Processes are killed with SIGKILL; nothing accepted is lost and nothing happens twice."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from postroom.errors import PostroomError
from tests.e2e.conftest import EXAMPLES, PostRoom, gone, until

# Answers each message with a number of its own; slow enough to be killed in mid-work.
COUNTER = """
import json, sys, time
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "message":
        print(json.dumps({"type": "post", "text": "effect of " + line["text"]}), flush=True)
        time.sleep(0.02)
        print(json.dumps({"type": "reply", "to": line["id"], "text": "done " + line["text"]}), flush=True)
"""
TEMPLATE = """
[worker]
name = "counter"
project = "demo"
[workstation]
command = ["python3", "/opt/agent/counter.py"]
files = ["counter.py"]
"""
MESSAGES = 40


@pytest.mark.slow
@pytest.mark.requirement("all-kills-counted")
def test_a_worker_killed_while_messages_arrive_catches_up_without_second_effects(
    room: PostRoom,
) -> None:
    room.up()
    room.run("spawn", room.template(TEMPLATE, "counter", counter=COUNTER))
    with room.client() as client:
        pid = client.worker("counter")["pid"] or 0
        sent = []
        for number in range(MESSAGES):
            sent.append(client.send("@counter", f"n{number}")["id"])
            if number == MESSAGES // 2:
                os.kill(pid, signal.SIGKILL)
        room.run("restart", "counter")
        states = [client.wait(message, "answered", 30.0)["state"] for message in sent]
        posts = client.posts("demo", limit=500)

    assert states == ["answered"] * MESSAGES
    expected = [f"effect of n{number}" for number in range(MESSAGES)]
    assert sorted(post["text"] for post in posts) == sorted(expected)


@pytest.mark.requirement("all-kills-counted")
@pytest.mark.timeout(120)
def test_after_sigkill_of_the_control_plane_everything_is_there_and_what_ran_runs_again(
    room: PostRoom,
) -> None:
    room.up()
    room.run("spawn", str(EXAMPLES / "echo.toml"))
    room.run("send", "@echo", "before", "--wait", "answered")
    room.run("chat", "#demo", given="a post\n")
    room.run("stop", "echo")
    waiting = room.json("send", "@echo", "waits")["id"]
    room.run("spawn", str(EXAMPLES / "echo.toml"), "--name", "runs")
    server, sandbox = room.server, room.worker("runs")["pid"]
    os.kill(server["pid"], signal.SIGKILL)
    until(lambda: gone(server["nats_pid"]))

    until(lambda: gone(sandbox))

    room.up()

    assert "you said:" in room.run("send", "@runs", "again", "--wait", "answered")
    assert room.worker("echo")["desired"] == "stopped"
    assert "a post" in room.run("chat", "#demo", given="")
    room.run("restart", "echo")
    assert "you said:" in room.run("receipt", waiting, "--wait", "answered")


@pytest.mark.requirement("post-key-once")
@pytest.mark.timeout(180)
def test_a_hundred_sends_under_one_key_make_one_message_over_two_kills_of_the_control_plane(
    room: PostRoom,
) -> None:
    room.up()
    room.run("people", "add", "anna")
    begun = threading.Semaphore(0)

    def send(number: int) -> str:
        with room.client() as client:

            def sent() -> str:
                begun.release()
                try:
                    return client.send("@anna", f"from {number}", key="the-one")["id"]
                except PostroomError:  # it was killed
                    return ""

            return until(sent, 90.0)

    with ThreadPoolExecutor(100) as threads:
        asked = [threads.submit(send, number) for number in range(100)]
        for _ in range(2):
            for _ in range(20):
                begun.acquire()
            server = room.server
            os.kill(server["pid"], signal.SIGKILL)
            until(lambda pid=server["nats_pid"]: gone(pid))
            room.up()
        ids = {each.result() for each in asked}

    assert len(ids) == 1
    with room.client() as client:
        assert [mail["id"] for mail in client.chat("@anna")] == [*ids]


# Holds eight messages and says something for each; it confirms what comes again.
HOLDER = """
import json, sys
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "message":
        said = {"type": "post", "text": "effect of " + line["text"], "re": line["id"]}
        print(json.dumps(said), flush=True)
        if line["redelivered"]:
            print(json.dumps({"type": "reply", "to": line["id"], "text": "done"}), flush=True)
"""


@pytest.mark.requirement("sidecar-message-handed")
@pytest.mark.slow
@pytest.mark.timeout(240)
def test_eight_that_a_worker_holds_when_the_control_plane_is_killed_are_answered_once_it_is_back(
    room: PostRoom,
) -> None:
    room.up()
    template = TEMPLATE + "window = 8\n"
    room.run("spawn", room.template(template, "counter", counter=HOLDER))
    names = [f"n{number}" for number in range(8)]
    with room.client() as client:
        sent = [client.send("@counter", name)["id"] for name in names]
        until(lambda: len(client.posts("demo")) == len(names))
        assert {client.wait(message, "delivered", 30.0)["state"] for message in sent} == {
            "delivered"
        }
    server, sandbox = room.server, room.worker("counter")["pid"]
    os.kill(server["pid"], signal.SIGKILL)
    until(lambda: gone(server["nats_pid"]) and gone(sandbox))

    room.up()

    with room.client() as client:
        states = [client.wait(message, "answered", 60.0)["state"] for message in sent]
        posts = client.posts("demo")
    assert states == ["answered"] * len(names)
    assert sorted(post["text"] for post in posts) == [f"effect of {name}" for name in names]


@pytest.mark.requirement("all-kills-counted")
def test_after_sigkill_of_nats_server_messages_flow_again(room: PostRoom) -> None:
    room.up()
    room.run("spawn", str(EXAMPLES / "echo.toml"))
    room.run("send", "@echo", "before", "--wait", "answered")
    os.kill(room.server["nats_pid"], signal.SIGKILL)

    answer = room.run("send", "@echo", "after", "--wait", "answered", "--timeout", "30")

    assert "you said:" in answer


@pytest.mark.requirement("mail-deadletter-moved")
@pytest.mark.slow
def test_a_message_that_kills_its_worker_becomes_a_dead_letter_that_can_be_requeued(
    room: PostRoom,
) -> None:
    poisoned = COUNTER.replace(
        'if line["type"] == "message":',
        'if line["type"] == "message":\n        if "poison" in line["text"]: sys.exit(1)',
    )
    room.up()
    room.run("spawn", room.template(TEMPLATE, "counter", counter=poisoned))
    message = room.json("send", "@counter", "poison")["id"]

    room.run("receipt", message, "--wait", "answered", "--timeout", "35", status=7)
    (dead,) = room.json("deadletters", "list")["deadletters"]
    assert dead["message_id"] == message

    room.run("deadletters", "requeue", str(dead["id"]))
    (dead,) = [
        d for d in room.json("deadletters", "list")["deadletters"] if d["message_id"] == message
    ]
    assert dead["requeued_as"]


@pytest.mark.requirement("mail-rebuild-equal")
def test_the_database_can_be_thrown_away_and_built_again_from_the_log(room: PostRoom) -> None:
    room.up()
    room.run("spawn", str(EXAMPLES / "echo.toml"))
    room.run("send", "@echo", "before", "--wait", "answered")
    room.run("chat", "#demo", given="a post\n")
    with room.client() as client:
        before = client.chat("@echo"), client.posts("demo")
    room.run("admin", "rebuild", status=5)  # while it runs
    room.run("down")

    room.run("admin", "rebuild")

    room.up()
    with room.client() as client:
        assert (client.chat("@echo"), client.posts("demo")) == before
