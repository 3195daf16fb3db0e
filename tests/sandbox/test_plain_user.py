"""What differs for a plain user, seen by a test run as root: it becomes one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from postroom.sandbox import bubblewrap_program
from postroom.sandbox.python_home import PACKAGES
from tests.sandbox.providers import needs_landlock

PYTHON = Path("/usr/bin/python3")  # root's own Python may lie where a plain user cannot look


def _has_python() -> bool:
    run = [PYTHON, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    return PYTHON.exists() and subprocess.run(run, check=False).returncode == 0


pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not _has_python(),
    reason="needs root, and a system Python of 3.11 or later",
)


def _run_as_plain_user(script: str, *arguments: object) -> str:
    done = subprocess.run(
        [PYTHON, "-B", "-c", script, *map(str, arguments)],
        env={
            "PYTHONPATH": os.pathsep.join(str(package.parent) for package in PACKAGES),
            "PATH": "/usr/bin:/bin",
        },
        cwd="/",
        user=12345,
        group=12345,
        extra_groups=[],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.stdout + done.stderr


PROBE = """
import asyncio, sys
from pathlib import Path
from postroom.sandbox.bubblewrap import BubblewrapProvider
print(asyncio.run(BubblewrapProvider(Path(sys.argv[1])).probe()))
"""


def test_a_plain_user_gets_the_same_wall():
    assert "Level.ENFORCED" in _run_as_plain_user(PROBE, bubblewrap_program.candidates()[0])


@needs_landlock
def test_a_plain_user_gets_the_same_partial_wall():
    script = """
import asyncio
from postroom.sandbox.landlock import LandlockProvider
print(asyncio.run(LandlockProvider().probe()))
"""
    assert "Level.PARTIAL" in _run_as_plain_user(script)


def test_netns_is_refused_to_a_plain_user_with_the_remedy():
    script = """
import asyncio
from postroom.sandbox.netns import NetnsProvider
print(asyncio.run(NetnsProvider().probe()))
"""
    said = _run_as_plain_user(script)

    assert "Level.NONE" in said
    assert "run Postroom as root" in said


SPLIT = """
import asyncio, socket, sys, tempfile
from pathlib import Path
from postroom.sandbox.bubblewrap import BubblewrapProvider
from postroom.sandbox.landlock import LandlockProvider
from postroom.sandbox.limits import SCRIPT
from postroom.sandbox.port import SandboxSpec

CODE = '''
import ctypes
print("unshare", ctypes.CDLL(None).unshare(0x10000000))
'''

async def main(folder: Path, provider):
    (folder / "workspace").mkdir()
    with socket.socket(socket.AF_UNIX) as gateway:
        gateway.bind(str(folder / "gateway.sock"))
        spec = SandboxSpec(
            (*SCRIPT, "-c", CODE), {}, "/", folder / "workspace", folder / "gateway.sock", folder / "log"
        )
        await (await provider.start(spec)).wait()
    print((folder / "log").read_text())

with tempfile.TemporaryDirectory() as folder:
    bwrap = Path(sys.argv[1])
    asyncio.run(main(Path(folder), BubblewrapProvider(bwrap) if bwrap.name == "bwrap" else LandlockProvider()))
"""


@pytest.mark.requirement("sandbox-kernel-files-closed")
@pytest.mark.parametrize("wall", ["bubblewrap", pytest.param("landlock", marks=needs_landlock)])
def test_a_plain_user_behind_a_wall_can_make_no_user_namespace(wall: str):
    chosen = bubblewrap_program.candidates()[0] if wall == "bubblewrap" else "/landlock"

    assert "unshare -1" in _run_as_plain_user(SPLIT, chosen)


COUNT = """
import os, sys, tempfile
from pathlib import Path
from postroom.sandbox import usage

with tempfile.TemporaryDirectory() as folder:
    inner = Path(folder, "outer", "inner")
    inner.mkdir(parents=True)
    (inner / "file").write_bytes(bytes(1 << 20))
    inner.chmod(int(sys.argv[1], 8))
    inner.parent.chmod(int(sys.argv[1], 8))
    Path(folder).chmod(int(sys.argv[1], 8))
    print("counted", usage.disk([Path(folder)], 1 << 30))
"""


@pytest.mark.requirement("limit-exceeded-ended")
@pytest.mark.parametrize("mode", ["000", "600", "100", "300"])
@pytest.mark.requirement("mend-disk-counted")
def test_a_folder_without_the_right_to_read_it_is_counted_all_the_same(mode: str):
    said = _run_as_plain_user(COUNT, mode)

    assert int(said.partition("counted ")[2].split()[0]) >= 1 << 20


LIMITED = """
import asyncio, socket, sys, tempfile
from pathlib import Path
from postroom.sandbox.bubblewrap import BubblewrapProvider
from postroom.sandbox.limits import SCRIPT
from postroom.sandbox.port import Limits, SandboxSpec

FORK = '''
import os, signal
started = 0
try:
    for _ in range(50):
        if not os.fork():
            signal.pause()
        started += 1
except BlockingIOError:
    print("stopped at", started)
'''

async def main(folder: str):
    (folder / "workspace").mkdir()
    with socket.socket(socket.AF_UNIX) as gateway:
        gateway.bind(str(folder / "gateway.sock"))
        spec = SandboxSpec(
            (*SCRIPT, "-c", FORK), {}, "/workspace", folder / "workspace",
            folder / "gateway.sock", folder / "log", limits=Limits(processes=10),
        )
        await (await BubblewrapProvider(Path(sys.argv[1])).start(spec)).wait()
    print((folder / "log").read_text())

with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder)))
"""


def test_a_process_limit_stops_a_program_that_forks_on():
    said = _run_as_plain_user(LIMITED, bubblewrap_program.candidates()[0])

    assert "stopped at" in said, said
    assert int(said.split("stopped at")[1]) <= 2 * 10
