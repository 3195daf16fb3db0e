"""People and workers exchange messages: send, chat, inbox, receipts."""

from __future__ import annotations

import httpx2
import pytest

from tests.e2e.conftest import EXAMPLES, PostRoom, until

ECHO = str(EXAMPLES / "echo.toml")


@pytest.mark.requirement("cli-spawn-starts-up")
@pytest.mark.requirement("cli-send-waits-answered")
def test_spawn_starts_a_post_room_and_a_question_is_answered(room: PostRoom) -> None:
    room.run("spawn", ECHO)

    assert "starting one" in room.stderr

    answer = room.run("send", "@echo", "hello there", "--wait", "answered")

    assert "you said:" in answer
    assert "hello there" in answer


@pytest.mark.requirement("cli-send-waits-answered")
def test_send_prints_message_id_and_receipt_state(room: PostRoom) -> None:
    room.up()
    room.run("spawn", ECHO)

    mail = room.json("send", "@echo", "hello")

    assert mail["state"] in ("accepted", "delivered", "seen", "answered")
    assert len(mail["id"]) == 32


@pytest.mark.requirement("mail-offline-waits")
def test_a_message_to_a_stopped_worker_waits_until_it_runs_again(room: PostRoom) -> None:
    room.up()
    room.run("spawn", ECHO)
    room.run("stop", "echo")

    mail = room.json("send", "@echo", "are you there?")

    assert mail["state"] == "accepted"
    assert room.worker("echo")["unread"] == 1

    room.run("restart", "echo")
    until(lambda: room.json("inbox", "--all")["messages"])

    (answer,) = room.json("inbox", "--all")["messages"]
    assert answer["reply_to"] == mail["id"]


def test_chat_with_an_agent_works_in_a_pipe(room: PostRoom) -> None:
    room.up()
    room.run("spawn", ECHO)
    chat = room.popen("chat", "@echo", stdin=-1)
    assert chat.stdin is not None
    assert chat.stdout is not None
    chat.stdin.write("ping\n")
    chat.stdin.flush()

    for line in chat.stdout:
        if "[echo]" in line:
            break
    chat.stdin.close()

    assert "you said:" in line
    assert chat.wait(20) == 0
    chat.stdout.close()


def test_what_is_typed_in_a_project_chat_is_in_its_history(room: PostRoom) -> None:
    room.up()
    room.run("chat", "#demo", given="good morning\n", status=4)
    room.run("chat", "#demo", "--new", given="good morning\n")

    history = room.run("chat", "#demo", given="")

    assert "good morning" in history


def test_what_is_wrong_with_a_request_is_said_in_words(room: PostRoom) -> None:
    room.run("up", "--detach", "--sandbox", "glass", status=2)
    assert "--sandbox is 'glass'" in room.stderr
    room.up()

    room.run("deadletters", "show", "letter", status=4)
    assert "there is no dead letter 'letter'" in room.stderr

    answer = httpx2.post(
        f"{room.server['url']}/v1/messages",
        content='{"to": "@echo", "text": "hi"}',
        headers={"Authorization": f"Bearer {room.server['token']}"},
    )
    assert answer.status_code == 422
    assert answer.json()["remedy"] == "send it with the header Content-Type: application/json"


@pytest.mark.requirement("mail-unknown-refused")
def test_an_unknown_recipient_is_said_at_once(room: PostRoom) -> None:
    room.up()
    room.run("send", "@nobody-here", "hello", status=4)

    assert "nobody-here" in room.stderr


@pytest.mark.requirement("mail-full-typed")
def test_a_message_over_the_limit_is_refused_before_it_is_sent(room: PostRoom) -> None:
    room.up()
    room.run("spawn", ECHO)
    room.run("send", "@echo", "-", given="x" * 600_000, status=2)

    assert "524288" in room.stderr
    assert room.worker("echo")["unread"] == 0


LISTENER = """
import json, sys
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "post":
        print(json.dumps({"type": "post", "text": "heard " + line["text"]}), flush=True)
"""


def test_a_worker_that_asks_for_it_hears_the_posts_of_its_project(room: PostRoom) -> None:
    text = """
[worker]
name = "listener"
project = "demo"
[workstation]
command = ["python3", "/opt/agent/listener.py"]
files = ["listener.py"]
feed = true
"""
    room.up()
    room.run("spawn", room.template(text, "listener", listener=LISTENER))
    room.await_state("listener", "idle")

    room.run("chat", "#demo", given="good morning\n")

    until(lambda: "heard good morning" in room.run("chat", "#demo", given=""))
