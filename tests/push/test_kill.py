"""Pushes over a SIGKILL of the control plane, as a person runs it: real processes, a real log, the commands."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from tests.e2e.conftest import PostRoom, gone, room, until

__all__ = ["room"]


class Hook(ThreadingHTTPServer):
    """A receiver that takes nothing until it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.takes = threading.Event()
        self.got: list[tuple[str, Any]] = []
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    """One push."""

    def do_POST(self) -> None:
        """Note it, and take it or say nothing."""
        hook = self.server
        assert isinstance(hook, Hook)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        name = self.headers["webhook-id"]
        hook.asked.append(name)
        if not hook.takes.is_set():
            self.rfile.read(1)  # until the other side has gone
            return
        hook.got.append((name, body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing."""


@contextmanager
def hooked() -> Generator[Hook]:
    hook = Hook()
    thread = threading.Thread(target=hook.serve_forever)
    thread.start()
    try:
        yield hook
    finally:
        hook.shutdown()
        hook.server_close()
        thread.join()


class Agent:
    """An agent that Postroom does not run."""

    def __init__(self, room: PostRoom, nick: str, key: str) -> None:
        self.room, self.nick, self.key = room, nick, key

    def post(self, path: str, body: dict[str, Any], key: str = "") -> Any:
        headers = {"Authorization": f"Bearer {key or self.key}", "A2A-Version": "1.0"}
        answer = httpx2.post(self.room.server["url"] + path, json=body, headers=headers, timeout=20)
        assert answer.is_success, answer.text
        return answer.json()

    def say(self, task: str, state: str) -> None:
        self.post(f"/v1/tasks/{task}/status", {"state": state, "text": f"it is {state}"})


def given(room: PostRoom, agent: Agent, url: str) -> str:
    said = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "do it"}]}
    configuration = {"returnImmediately": True, "taskPushNotificationConfig": {"url": url}}
    params = {"message": said, "configuration": configuration}
    call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}
    answer = agent.post(f"/a2a/{agent.nick}", call, room.server["token"])
    return answer["result"]["task"]["id"]


@pytest.mark.requirement("pushes-not-lost")
def test_what_was_stored_when_the_control_plane_was_killed_is_pushed_when_it_is_back(
    room: PostRoom,
):
    with hooked() as hook:
        port = hook.server_address[1]
        room.env |= {"POSTROOM_EGRESS_ALLOW_PRIVATE": f"127.0.0.1:{port}"}
        room.up()
        key = room.json("agents", "add", "ext", "--external")["key"]["key"]
        agent = Agent(room, "ext", key)
        task = given(room, agent, f"http://127.0.0.1:{port}/hook")
        agent.say(task, "working")
        until(lambda: hook.asked)  # the first is under way, and never answered
        agent.say(task, "completed")  # folded, and not sent
        shown = room.json("task", "pushes", task)["pushes"]
        # It was taken, it said something, it ended.
        assert [push["what"] for push in shown] == ["working", "working", "completed"]
        assert {push["state"] for push in shown} == {"pending"}
        pid = room.server["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: gone(pid))
        hook.takes.set()
        room.up()
        until(lambda: len(hook.got) == 3)
        states = [body["statusUpdate"]["status"]["state"] for _, body in hook.got]
        assert states == [*2 * ["TASK_STATE_WORKING"], "TASK_STATE_COMPLETED"]
        assert [name for name, _ in hook.got] == [push["id"] for push in shown]
        assert hook.got[0][0] == hook.asked[0]

        until(lambda: "pending" not in room.run("task", "pushes", task))
        lines = room.run("task", "pushes", task[:8]).splitlines()
        assert lines[0].split() == ["PUSH", "CHANGE", "STATE", "TRIES", "NEXT", "TO"]
        assert lines[3].split()[1:4] == ["completed", "delivered", "1"]
        again = shown[2]["id"].removeprefix("push_")[:8]
        room.run("task", "pushes", task, "--again", again)
        until(lambda: len(hook.got) == 4)
        assert hook.got[3] == hook.got[2]
        assert room.run("webhooks", "keys").startswith("secret  whsec_")
        room.run("task", "pushes", task, "--again", "ffffffffff", status=4)


@pytest.mark.requirement("webhooks-tell")
def test_a_webhook_that_a_person_adds_is_told_of_all_that_was_stored_when_the_room_was_killed(
    room: PostRoom,
):
    with hooked() as hook:
        port = hook.server_address[1]
        room.env |= {"POSTROOM_EGRESS_ALLOW_PRIVATE": f"127.0.0.1:{port}"}
        room.up()
        url = f"http://127.0.0.1:{port}/hook"
        key = room.json("agents", "add", "ext", "--external")["key"]["key"]
        agent = Agent(room, "ext", key)
        secret = room.run("webhooks", "add", url, "--events", "message.received,receipt").strip()
        webhook = room.json("webhooks", "list")["webhooks"][0]["id"]
        assert room.stderr == "" or "whsec" not in room.stderr
        with room.client() as client:
            operator = client.me()["nick"]
        agent.post("/v1/messages", {"to": f"@{operator}", "text": "one"})
        until(lambda: hook.asked)  # under way, and never answered
        agent.post("/v1/messages", {"to": f"@{operator}", "text": "two"})  # stored, and not sent
        pid = room.server["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: gone(pid))
        hook.takes.set()
        room.up()
        until(lambda: len(hook.got) == 2)
        assert [body["payload"]["preview"] for _, body in hook.got] == ["one", "two"]
        assert hook.got[0][0] == hook.asked[0]
        until(lambda: "pending" not in room.run("webhooks", "deliveries", webhook))
        assert len(hook.got) == 2
        assert "it has taken it" in room.run("webhooks", "test", webhook)
        again = room.json("webhooks", "deliveries", webhook)["deliveries"][0]["id"]
        room.run("webhooks", "again", webhook, again)
        until(lambda: len(hook.got) == 4)
        assert room.run("webhooks", "rotate", webhook).strip() not in ("", secret)
        room.run("webhooks", "add", url, "--events", "mail", status=2)
        room.run("webhooks", "remove", webhook)
        room.run("webhooks", "test", webhook, status=4)
