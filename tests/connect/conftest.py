"""Sessions in terminals: a real post room, `postroom connect run` as hooks begin it, and the hook file that they run.

The client is pretended: a process that lives, whose hooks a test runs as the client would.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from postroom.client.http import Client
from postroom.client.locate import locate
from postroom.http.unix import short_address
from tests.e2e.conftest import PostRoom, running_room

DEADLINE = 20.0
KEY = re.compile(rb"a2a_[0-9a-f]{32}_[0-9a-f]{64}")
"""Any API key: of a person, the operator or a session."""

T = TypeVar("T")

SET_UP = """
import sys
from postroom.connect import places
places.write_settings(places.Settings(state=sys.argv[1], wake_from=tuple(sys.argv[2:])))
print(places.write_hook())
"""


def until(find: Callable[[], T], what: str = "") -> T:
    """What `find` finds, as soon as it finds something."""
    end = time.monotonic() + DEADLINE
    while not (found := find()):
        assert time.monotonic() < end, what or find
        time.sleep(0.02)
    return found


def of_processes(*pids: int) -> bytes:
    """Environment and command line of processes and of what they have begun."""
    found = b""
    for pid in pids:
        place = Path(f"/proc/{pid}")
        found += (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
        begun = (place / "task" / str(pid) / "children").read_text().split()
        found += of_processes(*map(int, begun))
    return found


class Connected:
    """A person who has connected clients to a post room.

    Attributes:
        env: the environment of a client.
        hook: the file that clients run.
    """

    def __init__(self, room: PostRoom, scratch: Path, *wake_from: str) -> None:
        self.room = room
        self.env = {**room.env, "HOME": str(scratch), "POSTROOM_CONNECT_LINGER": "30"}
        words = [sys.executable, "-c", SET_UP, str(room.state), *wake_from]
        said = subprocess.run(words, env=self.env, text=True, capture_output=True, check=True)
        self.hook = Path(said.stdout.strip())
        self.folder = self.hook.parent
        self.clients: list[Terminal] = []

    def client(self, kind: str = "claude", session: str = "", folder: str = "app") -> Terminal:
        """A client that has just been opened."""
        made = Terminal(self, kind, session or uuid.uuid4().hex, folder)
        self.clients.append(made)
        return made

    def status(self) -> dict[str, Any]:
        """What `run` says; empty where none runs."""
        with socket.socket(socket.AF_UNIX) as link, contextlib.suppress(OSError):
            link.settimeout(DEADLINE)
            with short_address(self.folder / "run.sock") as address:
                link.connect(address)
            link.sendall(b"status\n")
            answer = b""
            while piece := link.recv(65536):
                answer += piece
            return json.loads(answer)
        return {}

    def sessions(self) -> dict[str, dict[str, Any]]:
        """The sessions by nick."""
        return {each["nick"]: each for each in self.status().get("sessions", ())}

    @property
    def person(self) -> str:
        """Address of the person."""
        with self.room.client() as client:
            return f"@{client.me()['nick']}"

    def inbox(self) -> dict[str, str]:
        """Texts in the person's inbox, each with the nick of its sender."""
        with self.room.client() as client:
            return {mail["text"]: mail["from"]["nick"] for mail in client.inbox()}

    def kill_run(self) -> int:
        """SIGKILL `run`."""
        pid = self.status()["pid"]
        os.kill(pid, signal.SIGKILL)
        until(lambda: not self.status(), "run is gone")
        return pid

    def send(self, to: str, text: str, *words: str) -> str:
        """A message of the person; its id."""
        return self.room.json("send", to, text, *words)["id"]

    def key_of(self, nick: str) -> str:
        """The key of another agent, which is made for it."""
        with self.room.client() as client:
            return client.add_agent(nick)["key"]["key"]

    def stranger(self, nick: str) -> Callable[..., str]:
        """Another agent, as which messages are sent, perhaps as an answer to one; each returns its id."""
        key = self.key_of(nick)

        def send(to: str, text: str, reply_to: str = "") -> str:
            find = partial(locate, self.room.state)
            with Client.on(lambda: replace(find(), token=key)) as client:
                return client.send(to, text, reply_to=reply_to)["id"]

        return send

    def state(self, message: str) -> str:
        """The state of a message, as its sender sees it."""
        with self.room.client() as client:
            return client.message(message)["state"]

    def close(self) -> None:
        """End all clients, and `run`."""
        for client in self.clients:
            client.kill()
        if pid := self.status().get("pid"):
            os.kill(pid, signal.SIGTERM)


class Terminal:
    """A client in a terminal.

    Attributes:
        turn: the client's id of the present turn.
        shown: what the last hook gives the person to see.
    """

    def __init__(self, owner: Connected, kind: str, session: str, folder: str) -> None:
        self._owner = owner
        self.kind = kind
        self.session = session
        self.turn = self.shown = ""
        self.cwd = Path(owner.env["HOME"]) / folder
        (self.cwd / ".git").mkdir(parents=True, exist_ok=True)
        self._waiters: list[subprocess.Popen[bytes]] = []
        self.open()

    def open(self) -> None:
        """Begin its process."""
        self.process = subprocess.Popen(["sleep", "600"])
        self.env = {**self._owner.env, "CLAUDE_PID": str(self.process.pid)}

    def kill(self) -> None:
        """SIGKILL its process and its hooks."""
        self.process.kill()
        self.process.wait()
        for waiter in self._waiters:
            waiter.kill()
            waiter.communicate()
        self._waiters.clear()

    def said(self, event: str, **fields: Any) -> bytes:
        """What the client tells a hook."""
        turn = {"prompt_id": self.turn} if event != "SessionStart" else {}
        body = {"session_id": self.session, "cwd": str(self.cwd), "hook_event_name": event}
        return json.dumps({**body, **turn, **fields}).encode()

    def command(self, event: str) -> list[str]:
        """The command line in the client's file."""
        path = self._owner.hook
        return ["sh", "-c", f"[ -r '{path}' ] && exec sh '{path}' {self.kind} {event}; exit 0"]

    def run(self, event: str, **fields: Any) -> subprocess.CompletedProcess[bytes]:
        """Run the hook of an event to its end."""
        return subprocess.run(
            self.command(event),
            input=self.said(event, **fields),
            env=self.env,
            capture_output=True,
            timeout=DEADLINE,
            check=False,
        )

    def at(self, event: str, **fields: Any) -> str:
        """The text that a hook gives the model, "" for none."""
        done = self.run(event, **fields)
        assert (done.returncode, done.stderr) == (0, b"")
        said = json.loads(done.stdout or "{}")
        self.shown = said.get("systemMessage", "")
        return said.get("hookSpecificOutput", {}).get("additionalContext", "")

    def start(self, source: str = "startup") -> str:
        """The session starts; what its model is told once it has an address."""
        text = self.at("SessionStart", source=source)

        def registered() -> bool:
            pids = [each["pid"] for each in self._owner.sessions().values()]
            if self.process.pid in pids:
                return True
            if not pids:  # the machine may be so slow that nobody heard it
                self.run("SessionStart", source=source)
            return False

        until(registered)
        return text

    def prompt(self, turn: str, text: str = "go on") -> str:
        """The person begins a turn."""
        self.turn = turn
        return self.at("UserPromptSubmit", prompt=text)

    def stop(self, words: str = "done") -> str:
        """The model has ended its turn."""
        return self.at("Stop", last_assistant_message=words, stop_hook_active=False)

    def wait(self) -> subprocess.Popen[bytes]:
        """The hook in the background."""
        waiter = subprocess.Popen(
            self.command("wait"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env,
        )
        assert waiter.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it may have ended by now
            waiter.stdin.write(self.said("Stop"))
            waiter.stdin.close()
        waiter.stdin = None
        self._waiters.append(waiter)
        return waiter


@pytest.fixture(scope="module")
def shared_room() -> Iterator[PostRoom]:
    with running_room() as room:
        yield room


@contextlib.contextmanager
def connected(room: PostRoom, scratch: Path, *wake_from: str) -> Generator[Connected]:
    """A person with a home of their own."""
    made = Connected(room, scratch, *wake_from)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def mine(shared_room: PostRoom, tmp_path: Path) -> Iterator[Connected]:
    with connected(shared_room, tmp_path) as made:
        yield made
