"""The event loop of the control plane, and what its child processes get from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.control.event_loop import WINDOW, Holds

CHILD = """
import asyncio, os, sys
from postroom.bus.parent_death import die_with_parent
from postroom.control import event_loop

async def main():
    run = asyncio.create_subprocess_exec
    {body}

event_loop.run(main())
"""


def start(body: str, *descriptors: int) -> subprocess.Popen[str]:
    """A process that runs `body` in the control plane's loop."""
    command = [sys.executable, "-c", CHILD.replace("{body}", body)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, pass_fds=descriptors)


def test_it_is_uvloop_where_that_is_installed():
    pytest.importorskip("uvloop")
    with start("print(type(asyncio.get_running_loop()).__module__)") as process:
        assert process.communicate(timeout=40)[0] == "uvloop\n"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_child_gets_no_descriptor_that_the_post_room_was_started_with(tmp_path: Path):
    with (tmp_path / "secret").open("w") as secret:
        body = "await (await run('ls', '-l', '/proc/self/fd')).wait()"
        with start(body, secret.fileno()) as process:
            found = process.communicate(timeout=40)[0]

    assert "/dev/null" in found or "pipe:" in found or "/dev/pts" in found
    assert "secret" not in found


def test_a_child_gets_the_descriptors_that_it_is_given(tmp_path: Path):
    (tmp_path / "lent").write_text("lent to the child")
    body = (
        f"fd = os.open({str(tmp_path / 'lent')!r}, os.O_RDONLY)\n"
        "    await (await run('cat', f'/dev/fd/{fd}', pass_fds=(fd,))).wait()"
    )
    with start(body) as process:
        assert process.communicate(timeout=40)[0] == "lent to the child"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has the signal")
def test_a_child_dies_with_a_post_room_that_is_killed():
    body = (
        "child = await run('sleep', '600', preexec_fn=die_with_parent())\n"
        "    print(child.pid, flush=True)\n"
        "    await child.wait()"
    )
    with start(body) as process:
        assert process.stdout is not None
        gone = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
        # A descriptor of a process can be read when that has ended.
        import select

        assert select.select([gone], [], [], 20)[0]
        os.close(gone)


def test_the_end_of_a_child_by_a_signal_is_seen():
    body = "child = await run('sleep', '600')\n    child.terminate()\n    print(await child.wait())"
    with start(body) as process:
        assert process.communicate(timeout=40)[0] == f"{-signal.SIGTERM}\n"


@pytest.mark.requirement("metrics-true")
def test_the_longest_hold_is_known():
    body = (
        "import time\n"
        "    await asyncio.sleep(0.2)\n"
        "    quiet = event_loop.HELD.longest\n"
        "    time.sleep(2)\n"
        "    await asyncio.sleep(0.1)\n"
        "    print(quiet < event_loop.HELD.longest, event_loop.HELD.longest >= 1.9)"
    )
    with start(body) as process:
        assert process.communicate(timeout=40)[0] == "True True\n"


@pytest.mark.requirement("metrics-true")
def test_a_hold_is_forgotten_after_a_minute_or_two():
    now = 0.0
    holds = Holds(lambda: now)
    holds.note(3.0)
    holds.note(1.0)
    assert holds.longest == 3.0
    now = WINDOW + 1
    holds.note(0.5)
    assert holds.longest == 3.0
    now = 2 * WINDOW + 1
    assert holds.longest <= 0.5
    holds.note(2.0)
    now = 9 * WINDOW
    assert holds.longest == 0.0


def test_a_collection_passes_over_what_was_there_when_the_post_room_was_ready():
    body = (
        "import gc\n"
        "    there = [[] for _ in range(1000)]\n"
        "    event_loop.settle()\n"
        "    print(gc.get_freeze_count() > 1000, len(gc.get_objects()) < 1000)"
    )
    with start(body) as process:
        assert process.communicate(timeout=40)[0] == "True True\n"
