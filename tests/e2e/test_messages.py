"""People and workers exchange messages: send, chat, inbox, receipts."""

from __future__ import annotations

import httpx2
import pytest

from tests.e2e.conftest import EXAMPLES, PostRoom, until

ECHO = str(EXAMPLES / "echo.toml")


@pytest.mark.requirement("one-word-starts")
@pytest.mark.requirement("cli-send-waits-answered")
def test_spawn_starts_a_post_room_and_a_question_is_answered(room: PostRoom) -> None:
    room.run("spawn", ECHO)

    assert "starting one" in room.stderr

    answer = room.run("send", "@echo", "hello there", "--wait", "answered")

    assert "you said:" in answer
    assert "hello there" in answer


@pytest.mark.requirement("cli-send-waits-answered")
def test_send_prints_message_id_and_receipt_state(shared: PostRoom) -> None:
    shared.run("spawn", ECHO, "--name", "first")

    mail = shared.json("send", "@first", "hello")

    assert mail["state"] in ("accepted", "delivered", "seen", "answered")
    assert len(mail["id"]) == 32


@pytest.mark.requirement("mail-offline-waits")
def test_a_message_to_a_stopped_worker_waits_until_it_runs_again(shared: PostRoom) -> None:
    shared.run("spawn", ECHO, "--name", "absent")
    shared.run("stop", "absent")

    mail = shared.json("send", "@absent", "are you there?")

    assert mail["state"] == "accepted"
    assert shared.worker("absent")["unread"] == 1

    shared.run("restart", "absent")

    def answered() -> bool:
        messages = shared.json("inbox", "--all")["messages"]
        return mail["id"] in [message["reply_to"] for message in messages]

    until(answered)


def test_chat_with_an_agent_works_in_a_pipe(shared: PostRoom) -> None:
    shared.run("spawn", ECHO, "--name", "talker")
    chat = shared.popen("chat", "@talker", stdin=-1)
    assert chat.stdin is not None
    assert chat.stdout is not None
    chat.stdin.write("ping\n")
    chat.stdin.flush()

    for line in chat.stdout:
        if "[talker]" in line:
            break
    chat.stdin.close()

    assert "you said:" in line
    assert chat.wait(20) == 0
    chat.stdout.close()


def test_what_is_typed_in_a_project_chat_is_in_its_history(shared: PostRoom) -> None:
    shared.run("chat", "#talk", given="good morning\n", status=4)
    shared.run("chat", "#talk", "--new", given="good morning\n")

    history = shared.run("chat", "#talk", given="")

    assert "good morning" in history


def test_what_is_wrong_with_a_request_is_said_in_words(shared: PostRoom) -> None:
    shared.run("up", "--detach", "--sandbox", "glass", status=2)
    assert "--sandbox is 'glass'" in shared.stderr

    shared.run("deadletters", "show", "letter", status=4)
    assert "there is no dead letter 'letter'" in shared.stderr

    answer = httpx2.post(
        f"{shared.server['url']}/v1/messages",
        content='{"to": "@echo", "text": "hi"}',
        headers={"Authorization": f"Bearer {shared.server['token']}"},
    )
    assert answer.status_code == 422
    assert answer.json()["remedy"] == "send it with the header Content-Type: application/json"


@pytest.mark.requirement("mail-offline-waits")
def test_an_unknown_recipient_is_said_at_once(shared: PostRoom) -> None:
    shared.run("send", "@nobody-here", "hello", status=4)

    assert "nobody-here" in shared.stderr


@pytest.mark.requirement("mail-floods-contained")
def test_a_message_over_the_limit_is_refused_before_it_is_sent(shared: PostRoom) -> None:
    shared.run("spawn", ECHO, "--name", "small")
    shared.run("send", "@small", "-", given="x" * 600_000, status=2)

    assert "524288" in shared.stderr
    assert shared.worker("small")["unread"] == 0


LISTENER = """
import json, sys
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "post":
        print(json.dumps({"type": "post", "text": "heard " + line["text"]}), flush=True)
"""


def test_a_worker_that_asks_for_it_hears_the_posts_of_its_project(shared: PostRoom) -> None:
    text = """
[worker]
name = "listener"
project = "demo"
[workstation]
command = ["python3", "/opt/agent/listener.py"]
files = ["listener.py"]
feed = true
"""
    shared.run("spawn", shared.template(text, "listener", listener=LISTENER))
    shared.await_state("listener", "idle")

    shared.run("chat", "#demo", given="good morning\n")

    until(lambda: "heard good morning" in shared.run("chat", "#demo", given=""))
