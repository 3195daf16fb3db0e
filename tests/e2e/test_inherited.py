"""A post room that is started with what nohup, a shell's background or a careless service manager leaves behind."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.e2e.conftest import DEADLINE, PostRoom, gone, until

pytestmark = pytest.mark.requirement("state-lock-exclusive")

TEMPLATE = """
[worker]
name = "idle"
[workstation]
command = ["sh", "-c", "grep ^Sig /proc/self/status > /tmp/signals; exec sleep 3600"]
[sidecar]
"""
IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGCHLD)
BLOCKED = (signal.SIGTERM, signal.SIGUSR1)


def careless() -> None:
    """In the child, before it becomes a post room."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, BLOCKED)
    os.umask(0)
    os.close(0)


@contextmanager
def started(room: PostRoom) -> Generator[subprocess.Popen[bytes]]:
    """`postroom up` in the foreground, ready."""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        room.command("up", "--port", "0", "--nats-port", "0"),
        env=room.env | {"POSTROOM_READY_FD": str(writing)},
        pass_fds=(writing,),
        preexec_fn=careless,  # noqa: PLW1509 (tests start it in their one thread)
        start_new_session=True,
    )
    os.close(writing)
    try:
        with os.fdopen(reading) as ready:
            assert ready.read() == "ready\n"
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(DEADLINE)


def masks(text: str) -> dict[str, list[int]]:
    """The ignored and the blocked signals of each status of a process in `text`."""
    # The C library keeps two signals (32 and 33) to itself: no program can set them, so whoever starts the tests may
    # have handed them on.
    settable = sum(1 << (number - 1) for number in signal.valid_signals())
    found: dict[str, list[int]] = {"SigIgn": [], "SigBlk": []}
    for name, mask in re.findall(r"(SigIgn|SigBlk):\s+([0-9a-f]{16})", text):
        found[name].append(int(mask, 16) & settable)
    return found


def stdin_of(pid: int) -> str:
    return str(Path(f"/proc/{pid}/fd/0").readlink())


def open_to_others(folder: Path) -> set[Path]:
    paths = [folder, *folder.rglob("*")]
    modes = {path: path.lstat().st_mode for path in paths}
    return {
        path for path, mode in modes.items() if not stat.S_ISLNK(mode) and stat.S_IMODE(mode) & 0o77
    }


def test_nothing_is_passed_on_and_a_hang_up_alone_does_not_end_it(room: PostRoom) -> None:
    with started(room) as process:
        room.run("spawn", room.template(TEMPLATE, "idle"))
        with Terminal("attach", "--raw", "@idle", "--state", str(room.state)) as terminal:
            terminal.read_until("leave with Ctrl-]")
            terminal.type("cat /tmp/signals; grep ^Sig /proc/self/status; echo do''ne\n")
            terminal.read_until("done")
            terminal.type("exit\n")
            terminal.ended()
        assert masks(terminal.plain) == {"SigIgn": [0, 0], "SigBlk": [0, 0]}
        server = room.server["nats_pid"]
        assert masks(Path(f"/proc/{server}/status").read_text())["SigIgn"] == [0]
        assert {stdin_of(process.pid), stdin_of(server)} == {os.devnull}

        process.send_signal(signal.SIGHUP)
        assert room.worker("idle")["state"] == "idle"
        assert process.poll() is None
        assert open_to_others(room.state) == set()

        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE) == 0
        assert gone(server)


def test_started_in_the_background_nobody_else_can_take_its_folders_and_down_ends_it(
    room: PostRoom,
) -> None:
    made = room.scratch / "made"
    room.state = made / "state"
    words = room.command("up", "--detach", "--port", "0", "--nats-port", "0")
    subprocess.run(
        words,
        env=room.env,
        preexec_fn=careless,
        timeout=DEADLINE,
        check=True,
    )

    assert stat.S_IMODE(made.stat().st_mode) == 0o755
    assert open_to_others(room.state) == set()
    pid = room.server["pid"]
    room.run("down")
    until(lambda: gone(pid))


def test_an_interrupt_that_was_ignored_at_the_start_ends_it(room: PostRoom) -> None:
    with started(room) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE) == 0
