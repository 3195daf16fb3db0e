"""What a session asks its person is an approval, too: who may answer it, and what ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from postroom.client.http import Client
from postroom.client.locate import locate
from postroom.errors import Forbidden, InvalidInput, MessageTooLarge
from tests.connect.conftest import Connected, Terminal, connected, until
from tests.e2e.conftest import PostRoom, running_room

PIN = "2846"


@pytest.fixture(scope="module")
def room() -> Iterator[PostRoom]:
    """Its owner has no PIN."""
    with running_room() as room:
        yield room


@pytest.fixture(scope="module")
def guarded_room() -> Iterator[PostRoom]:
    """Its owner has a PIN."""
    with running_room() as room, room.client() as client:
        client.set_pin(PIN)
        yield room


@pytest.fixture
def asking(room: PostRoom, tmp_path: Path) -> Iterator[Connected]:
    """A person who has switched approvals on for Claude Code."""
    with connected(room, tmp_path) as made:
        yield switched_on(made)


@pytest.fixture
def guarded(guarded_room: PostRoom, tmp_path: Path) -> Iterator[Connected]:
    """The same with a PIN."""
    with connected(guarded_room, tmp_path) as made:
        yield switched_on(made)


def switched_on(made: Connected) -> Connected:
    file = made.folder / "settings.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "approvals": ["claude"]}))
    return made


class Question:
    """A hook that waits for the answer to a permission."""

    def __init__(self, owner: Connected, terminal: Terminal, command: str, **more: str) -> None:
        self._owner = owner
        self.tool = {"tool_name": "Bash", "tool_input": {"command": command}}
        self.hook = subprocess.Popen(
            terminal.command("PermissionRequest"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=terminal.env,
            start_new_session=True,
        )
        assert self.hook.stdin is not None
        self.hook.stdin.write(terminal.said("PermissionRequest", **self.tool, **more))
        self.hook.stdin.close()
        self.hook.stdin = None
        self.command = command

    def found(self, state: str = "all") -> dict[str, Any]:
        """The approval; empty while there is none."""
        with self._owner.room.client() as client:
            rows = client.approvals(state=state)
        return next((dict(row) for row in rows if row["input"].get("command") == self.command), {})

    def pending(self) -> dict[str, Any]:
        return until(lambda: self.found("pending"), "it is not asked")

    def over(self, state: str) -> dict[str, Any]:
        """The approval once it stands so."""
        return until(lambda: (row := self.found())["state"] == state and row, state)

    def said(self) -> dict[str, Any] | None:
        """What the hook has told its client."""
        out, error = self.hook.communicate(timeout=20)
        assert (self.hook.returncode, error) == (0, b"")
        return json.loads(out)["hookSpecificOutput"]["decision"] if out else None


def session(owner: Connected) -> Terminal:
    terminal = owner.client()
    terminal.start()
    terminal.prompt("t1")
    return terminal


@pytest.mark.requirement("session-approval-owner")
def test_without_a_pin_it_is_seen_and_denied_from_elsewhere_and_never_allowed(asking: Connected):
    asked = Question(asking, session(asking), "rm -r /tmp/one")
    row = asked.pending()
    assert (row["worker"]["nick"], row["tool"], row["editable"]) == ("app", "Bash", False)

    with asking.room.client() as client, pytest.raises(Forbidden, match="PIN"):
        client.control(row["worker"]["uid"], row["id"], "allowed")
    assert asked.found()["state"] == "pending"
    asking.room.json("deny", row["id"], "--reason", "not that folder")

    assert asked.said() == {"behavior": "deny", "message": "not that folder"}


@pytest.mark.requirement("session-approval-owner")
def test_its_owner_allows_it_with_the_pin(guarded: Connected):
    asked = Question(guarded, session(guarded), "make deploy")
    row = asked.pending()
    assert "make deploy" in guarded.room.run("approvals")

    with guarded.room.client() as client:
        with pytest.raises(Forbidden, match="PIN"):
            client.control(row["worker"]["uid"], row["id"], "allowed")
        given = {"command": "make test"}
        with pytest.raises(InvalidInput, match="edited"):
            client.control(row["worker"]["uid"], row["id"], "edited", input=given, pin=PIN)
        client.control(row["worker"]["uid"], row["id"], "allowed", pin=PIN)

    assert asked.said() == {"behavior": "allow"}


@pytest.mark.requirement("session-approval-owner")
def test_no_session_and_no_other_person_allows_it(guarded: Connected):
    terminal = session(guarded)
    asked = Question(guarded, terminal, "make release")
    row = asked.pending()
    uid, find = row["worker"]["uid"], partial(locate, guarded.room.state)
    with guarded.room.client() as client:
        key = client.register_session("claude", "another", "other")["api_key"]["key"]
        client.add_person("paula")
        scopes = ("read", "operate")
        other = client.create_key(agent="paula", scopes=scopes, pin=PIN)["key"]
        program = client.create_key(
            agent=client.add_agent("deployer")["nick"], scopes=scopes, pin=PIN
        )
    with Client.on(lambda: replace(find(), token=key)) as client, pytest.raises(Forbidden):
        client.control(uid, row["id"], "denied")
    with (
        Client.on(lambda: replace(find(), token=program["key"])) as client,
        pytest.raises(Forbidden, match="people alone"),
    ):
        client.control(uid, row["id"], "denied")
    with Client.on(lambda: replace(find(), token=other)) as client:
        client.set_pin("1111")
        with pytest.raises(Forbidden, match="owner"):
            client.control(uid, row["id"], "allowed", pin="1111")
        client.control(uid, row["id"], "denied", pin="1111")

    assert asked.said() == {"behavior": "deny", "message": "denied by @paula"}


def test_the_next_event_tells_that_it_was_answered_at_the_terminal(asking: Connected):
    terminal = session(asking)
    asked = Question(asking, terminal, "make one")
    of_subagent = Question(asking, terminal, "make two", agent_id="a1")
    asked.pending()
    of_subagent.pending()
    terminal.at("PostToolBatch", tool_calls=[{**asked.tool, "tool_use_id": "u1"}])

    assert asked.said() is None
    row = asked.over("withdrawn")
    assert row["answer"]["reason"] == "answered at the terminal"
    assert of_subagent.found()["state"] == "pending"
    terminal.at("PostToolBatch", tool_calls=[], agent_id="a1")
    assert of_subagent.said() is None


def test_it_is_over_when_the_session_or_the_hook_ends(asking: Connected):
    terminal = session(asking)
    stopped = Question(asking, terminal, "make three")
    stopped.pending()
    os.killpg(stopped.hook.pid, signal.SIGKILL)
    stopped.hook.communicate()
    assert stopped.over("withdrawn")["answer"]["reason"] == "its client waits no longer"

    asked = Question(asking, terminal, "make four")
    asked.pending()
    terminal.kill()
    assert asked.said() is None
    assert asked.over("withdrawn")["answer"]["reason"] == "the session has ended"


def test_it_expires_visibly_without_an_answer(asking: Connected):
    with asking.room.client() as client:
        made = client.register_session("claude", "short", "short")
    find = partial(locate, asking.room.state)
    with Client.on(lambda: replace(find(), token=made["api_key"]["key"])) as client:
        asked = client.ask_approval("@short", "ab" * 16, "Bash", {"command": "ls"}, seconds=0.2)
        again = client.ask_approval("@short", "ab" * 16, "Bash", {"command": "ls"}, seconds=0.2)
        assert (asked["seq"], asked["default"]) == (again["seq"], "no answer")
        assert client.asked_approval("@short", "ab" * 16, wait=20)["state"] == "expired"
        with pytest.raises(MessageTooLarge):
            client.ask_approval("@short", "cd" * 16, "Write", {"content": "x" * 70_000})
    with asking.room.client() as client, pytest.raises(Forbidden, match="itself"):
        client.ask_approval("@short", "ef" * 16, "Bash", {"command": "ls"})


def test_nothing_is_asked_elsewhere_unless_it_is_switched_on(mine: Connected):
    asked = Question(mine, session(mine), "make five")

    assert asked.said() is None
    assert asked.found() == {}
