"""How sandboxes end: by themselves, on request, by force, and with their parent. All providers alike."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from postroom.sandbox.port import SandboxProvider
from tests.sandbox.providers import ALL
from tests.sandbox.rig import PRELUDE, Rig

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("provider", ALL),
]

# A child of a child, in a session of its own, that holds the output and ignores what it can.
DETACHED = """
if not os.fork():
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not os.fork():
        say("detached")
        while True:
            signal.pause()
    os._exit(0)
os.wait()
"""
FOREVER = "\nwhile True: signal.pause()\n"


def _marked(marker: str) -> list[int]:
    """The host's processes that have `marker` in their environment, zombies aside."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if marker.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


@pytest.fixture
def marker(rig: Rig):
    return f"RIG={rig.folder}"


@pytest.fixture
def env(rig: Rig):
    return {"RIG": str(rig.folder)}


@pytest.mark.requirement("wall-dies-with-post-room")
async def test_kill_leaves_no_process_not_even_a_detached_one(
    rig: Rig, provider: SandboxProvider, env: dict[str, str], marker: str
):
    handle = await rig.start(provider, DETACHED + "say('main')" + FOREVER, env=env)
    assert {await rig.hear(), await rig.hear()} == {"detached", "main"}
    assert len(_marked(marker)) >= 2

    handle.kill()
    status = await asyncio.wait_for(handle.wait(), 10)

    assert status.signal == signal.SIGKILL
    assert _marked(marker) == []


@pytest.mark.requirement("wall-dies-with-post-room")
async def test_when_the_program_ends_so_does_a_detached_child_that_holds_its_output(
    rig: Rig, provider: SandboxProvider, env: dict[str, str], marker: str
):
    handle = await rig.start(provider, DETACHED + "sys.exit(3)", env=env)
    assert await rig.hear() == "detached"

    status = await asyncio.wait_for(handle.wait(), 10)

    assert status.code == 3
    assert _marked(marker) == []


async def test_stop_lets_the_program_end_by_itself(rig: Rig, provider: SandboxProvider):
    code = "signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\nsay('up')" + FOREVER
    handle = await rig.start(provider, code)
    await rig.hear()

    assert (await handle.stop(10)).code == 7


async def test_stop_kills_a_program_that_ignores_the_request(
    rig: Rig, provider: SandboxProvider, env: dict[str, str], marker: str
):
    code = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay('up')" + FOREVER
    handle = await rig.start(provider, code, env=env)
    await rig.hear()

    assert (await handle.stop(0.1)).signal == signal.SIGKILL
    assert _marked(marker) == []


async def test_stop_after_the_end_returns_the_same_status(rig: Rig, provider: SandboxProvider):
    handle = await rig.start(provider, "sys.exit(5)")

    assert await handle.wait() == await handle.stop(1)


async def test_a_program_that_a_signal_ended_is_reported_as_shells_do(
    rig: Rig, provider: SandboxProvider
):
    handle = await rig.start(provider, "os.kill(os.getpid(), signal.SIGKILL)")

    assert (await handle.wait()).signal == signal.SIGKILL


PARENT = """
import asyncio, json, sys
from pathlib import Path
from postroom.sandbox.port import SandboxSpec
from postroom.sandbox.select import select

async def main():
    name, folder = sys.argv[1], Path(sys.argv[2])
    provider = (await select(name)).provider
    spec = SandboxSpec(
        tuple(json.loads(sys.argv[3])), {"RIG": str(folder)}, "/", folder / "workspace",
        folder / "gateway.sock", folder / "log",
    )
    handle = await provider.start(spec)
    await handle.wait()

asyncio.run(main())
"""


@pytest.mark.requirement("wall-dies-with-post-room")
async def test_the_sandbox_dies_when_its_parent_is_killed(
    rig: Rig, provider: SandboxProvider, marker: str
):
    gateway = provider.paths(rig.draft()).gateway_socket
    argv = [sys.executable, "-I", "-S", "-c", PRELUDE + DETACHED + "say('main')" + FOREVER, gateway]
    parent = subprocess.Popen(  # noqa: ASYNC220 (nothing is awaited while it starts)
        [sys.executable, "-c", PARENT, provider.name, str(rig.folder), json.dumps(argv)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    try:
        assert {await rig.hear(), await rig.hear()} == {"detached", "main"}
        descriptors = [os.pidfd_open(pid) for pid in _marked(marker)]
        assert descriptors
    finally:
        parent.kill()
        parent.wait()

    for descriptor in descriptors:
        ended, _, _ = select.select([descriptor], [], [], 10)
        os.close(descriptor)
        assert ended
    assert _marked(marker) == []
