"""Idle sessions are woken by their clients' own ways, and what is not woken is said to wait."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from postroom.http.unix import short_address
from tests.connect.conftest import DEADLINE, Connected, Terminal, until
from tests.connect.test_run import arrived, opened
from tests.e2e.conftest import gone

QUEUE = """#!/bin/sh
printf '%s\\n' "$CODEX_HOME" "$@" > "$HOME/queued.$$"
mv "$HOME/queued.$$" "$HOME/queued"
"""


SPAWN = "import pty, sys; pty.spawn(sys.argv[1:])"


@contextmanager
def in_terminal(name: str, folder: Path) -> Generator[int]:
    """A process of that name in a terminal; its id."""
    waits = folder.parent / "waits" / name
    waits.parent.mkdir()
    shutil.copy(shutil.which("sleep") or "", waits)
    words = [sys.executable, "-c", SPAWN, str(waits), "60"]
    spawner = subprocess.Popen(
        words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    children = Path(f"/proc/{spawner.pid}/task/{spawner.pid}/children")
    try:
        yield int(until(children.read_text).split()[0])
    finally:
        spawner.kill()
        spawner.wait()


@contextmanager
def inbox_socket(app: Terminal, home: Path, status: str) -> Generator[socket.socket]:
    """The socket on which Claude Code takes messages, and the file in which it says so."""
    path = home / "box.sock"
    listener = socket.socket(socket.AF_UNIX)
    with listener, short_address(path) as address:
        listener.bind(address)
        listener.listen()
        listener.settimeout(DEADLINE)
        (home / "sessions").mkdir(parents=True, exist_ok=True)
        said = {"sessionId": app.session, "status": status, "messagingSocketPath": str(path)}
        (home / "sessions" / f"{app.process.pid}.json").write_text(json.dumps(said))
        yield listener


@pytest.fixture
def home() -> Iterator[Path]:
    """The client's folder: the address of a socket in it has to be short."""
    with tempfile.TemporaryDirectory(prefix="home-") as folder:
        yield Path(folder)


def test_claude_code_without_a_hook_that_waits_is_woken_by_its_socket(mine: Connected, home: Path):
    app, nick = opened(mine)
    with inbox_socket(app, home, "idle") as listener:
        transcript = str(home / "projects" / "x" / "t.jsonl")
        app.at("Stop", last_assistant_message="x", transcript_path=transcript)
        sent = mine.send(nick, "which shape?")
        link, _ = listener.accept()
        with link:
            line = json.loads(link.makefile().readline())
    assert "| which shape?" in line["message"]["content"]
    until(lambda: mine.state(sent) == "delivered")
    app.turn = "t2"
    app.at("UserPromptSubmit", prompt=line["message"]["content"])
    app.stop("answered")
    until(lambda: mine.state(sent) == "seen")


def test_an_interrupted_session_that_told_no_hook_is_woken_when_its_client_says_that_it_is_idle(
    mine: Connected, home: Path
):
    app, nick = opened(mine)
    waiter = app.wait()
    app.at("PreToolUse", tool_use_id="a", transcript_path=str(home / "projects" / "x" / "t.jsonl"))
    arrived(mine, nick)
    assert waiter.poll() is None, "it is busy"

    with inbox_socket(app, home, "idle"):
        assert waiter.wait(DEADLINE) == 2


@pytest.mark.requirement("session-woken-rightly")
def test_codex_is_woken_by_its_queue_without_the_mail_on_a_command_line(mine: Connected):
    home = Path(mine.env["HOME"])
    program = home / "bin" / "codex"
    program.parent.mkdir()
    program.write_text(QUEUE)
    program.chmod(0o700)
    mine.env["PATH"] = f"{program.parent}:{mine.env['PATH']}"
    app = mine.client("codex")
    with in_terminal("codex", app.cwd) as terminal:
        transcript = str(home / ".codex" / "sessions" / "x.jsonl")
        app.start()
        app.prompt("t1")
        app.run("Stop", transcript_path=transcript)
        (nick,) = mine.sessions()

        sent = mine.send(f"@{nick}", "which shape?")

        until((home / "queued").exists)
        where, *words = (home / "queued").read_text().splitlines()
        assert (where, words[:4]) == (
            str(home / ".codex"),
            ["queue", "--thread", app.session, "--message"],
        )
        assert "not the user" in words[4]
        assert "shape" not in " ".join(words)
        assert mine.state(sent) == "accepted"
        assert "| which shape?" in app.prompt("t2", text=words[4])
        until(lambda: mine.state(sent) == "delivered")
        app.run("PostModelRequest", status="completed")
        app.run("PreModelRequest")
        app.run("PostModelRequest", status="cancelled")
        assert mine.state(sent) == "delivered"
        app.run("PreModelRequest")
        app.run("PostModelRequest", status="completed")
        until(lambda: mine.state(sent) == "seen")
        app.run("Stop", last_assistant_message="answered")

        (home / "queued").unlink()
        os.kill(terminal, signal.SIGKILL)
        until(lambda: gone(terminal))
    arrived(mine, f"@{nick}", "with no terminal it would act unseen")
    until(lambda: mine.sessions()[nick]["state"] == "gone")
    with mine.room.client() as client:
        until(lambda: client.session(f"@{nick}")["state"] == "gone")
    assert not (home / "queued").exists()
    assert "| with no terminal it would act unseen" in app.prompt("t3")
    assert mine.sessions()[nick]["state"] == "busy"


def test_gemini_is_not_woken_and_has_its_mail_at_its_next_prompt(mine: Connected):
    app = mine.client("gemini")
    app.start()
    app.run("BeforeAgent", prompt="x")
    app.run("AfterAgent")
    (nick,) = mine.sessions()
    sent = arrived(mine, f"@{nick}")
    assert mine.state(sent) == "accepted"

    assert "| which shape?" in app.at("BeforeAgent", prompt="y")
    app.run("AfterAgent")

    until(lambda: mine.state(sent) == "seen")
