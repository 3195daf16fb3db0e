"""A post room for a benchmark: real processes, a state folder of its own, nothing left of it at the end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from postroom.client.http import Client
from postroom.protocol.shapes import Worker

ECHO = Path(__file__).resolve().parent.parent / "examples" / "echo.toml"
DEADLINE = 90.0
"""Seconds that any one command may take; longer than `up --detach` itself waits, so that it can tidy up."""

_KEPT = ("PATH", "LANG", "POSTROOM_NATS_SERVER")
_OWN = ("PYTHONPATH", "VIRTUAL_ENV")


def command_line(state: Path, *words: str, python: str = sys.executable) -> list[str]:
    """A command of Postroom on the state folder `state`, as the environment of `python` has it."""
    return [python, "-m", "postroom", "--state", str(state), *words]


def environment(scratch: Path, python: str = sys.executable) -> dict[str, str]:
    """The environment of every process: nothing of the user's settings reaches it, nor of another interpreter's."""
    wanted = _KEPT + (_OWN if python == sys.executable else ())
    kept = {key: os.environ[key] for key in wanted if key in os.environ}
    return kept | {"HOME": str(scratch), "NO_COLOR": "1"}


class PostRoom:
    """A running post room.

    Attributes:
        state: its state folder.
        env: the environment of its commands.
        python: the interpreter that runs them.
    """

    def __init__(self, scratch: Path, python: str = sys.executable) -> None:
        self.state = scratch / "state"
        self.env = environment(scratch, python)
        self.python = python

    def run(self, *words: str) -> str:
        """Run a command to its end; returns what it printed.

        Raises:
            RuntimeError: it failed; with what it said.
        """
        done = subprocess.run(
            command_line(self.state, *words, python=self.python),
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"postroom {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    @property
    def server(self) -> dict[str, Any]:
        """What `server.json` says: url, token, pid, nats_url, nats_pid."""
        return json.loads((self.state / "server.json").read_text(encoding="utf-8"))

    def client(self) -> Client:
        """A client of its HTTP API."""
        return Client.at(self.state)

    def address(self, nick: str) -> str:
        """The uid of a new worker that is stopped: its inbox keeps what comes, and nobody takes it out.

        It needs no wall, for nothing runs while we measure.
        """
        self.run("spawn", str(ECHO), "--name", nick, "--sandbox", "none")
        with self.client() as client:
            return client.stop(nick)["uid"]

    def idle_worker(self, nick: str, template: Path) -> Worker:
        """A new sandboxed worker, once it has said that it waits for work."""
        self.run("spawn", str(template), "--name", nick)
        return self.idle(nick)

    def idle(self, nick: str) -> Worker:
        """The worker of that nick, once it has said that it waits for work."""
        end = time.monotonic() + DEADLINE
        with self.client() as client:
            while (worker := client.worker(nick))["state"] != "idle":
                if time.monotonic() > end:
                    raise RuntimeError(f"the worker is {worker['state']}: {worker['detail']}")
                time.sleep(0.05)  # the state is another process's, and there is no event for it
        return worker

    def end(self, pids: list[int]) -> None:
        """End it; what does not end by itself is killed, by the process ids that it told."""
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
            self.run("down")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def scratch_folder() -> Generator[Path]:
    """A folder that is removed at the end."""
    with tempfile.TemporaryDirectory(
        prefix="postroom-bench-", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


@contextlib.contextmanager
def post_room(
    python: str = sys.executable, more: Mapping[str, str] = MappingProxyType({})
) -> Generator[PostRoom]:
    """A post room on free ports, run by that interpreter, with `more` in its environment."""
    with scratch_folder() as scratch:
        room = PostRoom(scratch, python)
        room.env |= more
        pids: list[int] = []
        try:
            room.run("up", "--detach", "--port", "0", "--nats-port", "0")
            pids = [room.server["pid"], room.server["nats_pid"]]
            yield room
        finally:
            room.end(pids)
