"""`postroom attach --raw`: a real shell in a real sandbox, through the gateway, in a pseudo terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
import signal
import struct
import termios
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.cli.conftest import LIMIT
from tests.cli.terminal import Terminal
from tests.e2e.conftest import PostRoom, until

AGENT = """
import sys
for line in sys.stdin:
    pass
"""
TEMPLATE = """
[worker]
name = "coder"
[workstation]
command = ["python3", "/opt/agent/coder.py"]
files = ["coder.py"]
env = { MARK = "in-the-sandbox" }
[sidecar]
"""


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Generator[PostRoom]:
    folder = tmp_path_factory.mktemp("raw")
    post_room = PostRoom(folder / "state", folder)
    post_room.up()
    path = post_room.template(TEMPLATE, "coder", coder=AGENT)
    post_room.run("spawn", path)
    try:
        yield post_room
    finally:
        post_room.call("down")


def attached(room: PostRoom, columns: int = 80) -> Terminal:
    return Terminal("attach", "--raw", "@coder", "--state", str(room.state), columns=columns)


def resize(terminal: Terminal, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    terminal.process.send_signal(signal.SIGWINCH)


def opened(terminal: Terminal) -> None:
    """A shell answers: what is typed before it runs is shown twice, so an answer is what it computes."""
    terminal.read_until("leave with Ctrl-]")
    terminal.type("echo rea''dy\n")
    terminal.read_until("ready")


@pytest.mark.requirement("terminal-one-at-a-time")
def test_a_shell_in_the_sandbox_has_the_size_the_environment_and_the_exit_status(room: PostRoom):
    with attached(room, columns=91) as terminal:
        opened(terminal)
        terminal.type("stty size; echo $MARK; hostname\n")
        terminal.read_until("30 91")
        terminal.read_until("in-the-sandbox")
        resize(terminal, 77, 33)
        # The new size and what is typed come by different ways.
        terminal.type('until [ "$(stty size)" = 33\\ 77 ]; do sleep 0.1; done; stty size\n')
        terminal.read_until("33 77")
        terminal.type("exit 7\n")
        assert terminal.ended() == 7
    events = [json.loads(line) for line in _events(room)]
    (first, *_, last) = [event for event in events if event["type"] == "terminal"][-2:]
    assert (first["state"], last["state"]) == ("opened", "closed")
    assert last["reason"] == "the shell has ended"
    assert last["printed"] > last["typed"] > 0
    audited = [line for line in room.run("audit", "--json").splitlines() if "terminal" in line]
    assert any('"open"' in line and '"protocol": "terminal"' in line for line in audited)
    assert any(re.search(r"/terminals/[0-9a-f]+/output", line) for line in audited)


@pytest.mark.requirement("terminal-one-at-a-time")
def test_a_second_person_is_told_whose_it_is(room: PostRoom):
    with attached(room) as terminal:
        opened(terminal)
        with attached(room) as second:
            assert second.ended() == 5
        assert re.search(r"@\w+ has a terminal open in @coder since", second.plain)
        terminal.type("\x1d")
        assert terminal.ended() == 0
    with attached(room) as again:
        opened(again)
        again.type("\x1d")
        assert again.ended() == 0


@pytest.mark.requirement("terminal-one-at-a-time")
def test_it_ends_with_its_person_even_if_that_is_killed_and_so_does_what_runs_there(
    room: PostRoom,
):
    with attached(room) as terminal:
        opened(terminal)
        terminal.type("sleep 4815162342\n")
        until(lambda: _running("4815162342"))
        terminal.process.kill()
        terminal.process.wait(LIMIT)
    until(lambda: not _running("4815162342"))


@pytest.mark.requirement("terminal-one-at-a-time")
def test_much_output_comes_whole_and_in_order(room: PostRoom):
    with attached(room) as terminal:
        opened(terminal)
        terminal.type("seq 1 60000; echo do''ne\n")
        terminal.read_until("done")
        terminal.type("exit\n")
        assert terminal.ended() == 0
    numbers = re.findall(r"^\r?(\d+)$", terminal.plain, re.MULTILINE)
    assert numbers == [str(number) for number in range(1, 60001)]


@pytest.mark.requirement("terminal-one-at-a-time")
def test_the_stop_of_the_worker_ends_it_and_the_persons_terminal_is_as_before(room: PostRoom):
    with attached(room) as terminal:
        before = termios.tcgetattr(terminal._fd)
        opened(terminal)
        assert termios.tcgetattr(terminal._fd) != before
        room.run("stop", "@coder")
        assert terminal.ended() != 0
        assert termios.tcgetattr(terminal._fd) == before
    assert "the terminal has ended: the worker has ended" in terminal.plain
    room.run("restart", "@coder")


def test_without_a_terminal_it_is_refused(room: PostRoom):
    assert "none" in room.call("attach", "--raw", "@coder").stderr


def _events(room: PostRoom) -> list[str]:
    with room.client() as client:
        return [json.dumps(event) for event in client.newest_events("coder", limit=50)]


def _running(argument: str) -> bool:
    """Whether a `sleep` with that argument runs, in whichever sandbox."""
    wanted = f"sleep\0{argument}\0".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cmdline").read_bytes() == wanted:
                return True
    return False
