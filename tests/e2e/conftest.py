"""A post room as a person has it: the command line, real processes, a state folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from postroom.client.http import Client
from tests.prefork import prefork

DEADLINE = 40.0
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

TEMPLATE = """
[worker]
name = "{name}"
[workstation]
command = ["python3", "/opt/agent/{name}.py"]
files = ["{name}.py"]
"""
"""Of a worker whose program is one file of its name."""


class PostRoom:
    """One state folder and the commands of a person who works on it."""

    def __init__(self, state: Path, scratch: Path) -> None:
        self.state = state
        self.scratch = scratch
        self.env = {
            **{key: os.environ[key] for key in ("PATH", "LANG", "PYTHONPATH") if key in os.environ},
            "HOME": str(scratch),
            "NO_COLOR": "1",
        }

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "postroom", "--state", str(self.state), *words]

    def call(self, *words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, whatever that is."""
        return prefork().run(["--state", str(self.state), *words], self.env, given, DEADLINE)

    def run(self, *words: str, status: int = 0, given: str | None = None) -> str:
        """Run a command to its end; its stdout. `status` is the exit status that is expected."""
        done = self.call(*words, given=given)
        self.stderr = done.stderr
        assert status == done.returncode, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json"))

    def popen(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(*words), env=self.env, text=True, stdout=subprocess.PIPE, **more
        )

    def up(self, *words: str) -> None:
        """Start it, and wait until it is ready."""
        logs = self.state / "logs"
        logs.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = logs / "up.log"
        log.touch(0o600)
        words = ("--state", str(self.state), "up", "--port", "0", "--nats-port", "0", *words)
        reading, writing = os.pipe()
        with open(reading, "rb") as ready:  # noqa: PTH123
            prefork().start(words, self.env, log, writing)
            os.close(writing)
            assert ready.read() == b"ready\n", log.read_text() + self.control_log

    def client(self) -> Client:
        """The library behind the commands, for many calls at once."""
        return Client.at(self.state)

    def template(self, text: str, name: str = "worker", **files: str) -> str:
        """A template file with agent programs next to it; its path."""
        folder = self.scratch / name
        folder.mkdir(exist_ok=True)
        for file, content in files.items():
            (folder / f"{file}.py").write_text(content)
        path = folder / f"{name}.toml"
        path.write_text(text)
        return str(path)

    def worker(self, nick: str) -> dict[str, Any]:
        (found,) = [w for w in self.json("status")["workers"] if w["nick"] == nick]
        return found

    def await_state(self, nick: str, *states: str) -> dict[str, Any]:
        until(lambda: self.worker(nick)["state"] in states)
        return self.worker(nick)

    @property
    def control_log(self) -> str:
        """What the post room has logged; a failure's own line may not have reached `up.log` yet."""
        return (self.state / "logs" / "control.log").read_text()

    @property
    def server(self) -> dict[str, Any]:
        return json.loads((self.state / "server.json").read_text())


T = TypeVar("T")


def until(condition: Callable[[], T], deadline: float = DEADLINE) -> T:
    """Ask again until the answer is true; these are other processes, whose events we do not see."""
    end = time.monotonic() + deadline
    while not (answer := condition()):
        assert time.monotonic() < end, "it did not become true in time"
        time.sleep(0.05)
    return answer


def gone(pid: int) -> bool:
    """Whether no process has that number (a zombie that nobody reaped counts as gone)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


@contextmanager
def running_room(**env: str) -> Generator[PostRoom]:
    """A post room that is up, for all the tests of a module."""
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        room = PostRoom(Path(scratch) / "state", Path(scratch))
        room.env |= env
        room.up()
        yield room
        room.run("down")


@pytest.fixture(scope="module")
def shared() -> Iterator[PostRoom]:
    """A post room that is up, for the tests of a module that mind no others; each uses names of its own."""
    with running_room() as room:
        yield room


@pytest.fixture
def room() -> Iterator[PostRoom]:
    """A post room that is down at the start, and of which no process is left at the end."""
    with tempfile.TemporaryDirectory(prefix="postroom-e2e-") as scratch:
        room = PostRoom(Path(scratch) / "state", Path(scratch))
        try:
            yield room
        finally:
            pids = []
            if (room.state / "server.json").exists():
                pids = [room.server["pid"], room.server["nats_pid"]]
                room.call("down")
            for pid in pids:
                if not gone(pid):
                    os.kill(pid, signal.SIGKILL)
