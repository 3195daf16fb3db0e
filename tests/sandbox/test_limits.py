"""Limits of real sandboxes: what goes over one is ended, its end says which, and nothing is left.

The looks are as often as the machine allows, so that nothing here waits for a second to pass. The limits are
small, and what the programs take is bounded, too: a limit that does not hold must not hurt the machine.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from postroom.errors import EnvironmentFault
from postroom.sandbox import usage
from postroom.sandbox.bubblewrap import BubblewrapProvider
from postroom.sandbox.limit_monitor import LimitedHandle, LimitMonitor
from postroom.sandbox.port import Limits, SandboxProvider
from tests.sandbox.providers import ALL
from tests.sandbox.rig import Rig

pytestmark = pytest.mark.anyio

MIB = 1024 * 1024
DEADLINE = 30.0
every_provider = pytest.mark.parametrize("provider", ALL)

CROWD = """
for _ in range(5):
    if not os.fork():
        kept = bytearray(b"y") * (20 << 20)
        signal.pause()
signal.pause()
"""
BOMB = """
for _ in range(40):
    try:
        if not os.fork():
            signal.pause()
    except BlockingIOError:
        pass
signal.pause()
"""
FILLER = """
for number in range(40):
    with open(sys.argv[2] + f"/{number}", "wb") as file:
        file.write(b"x" * (1 << 20))
signal.pause()
"""
EMPTY_FILES = """
for number in range(3000):
    open(sys.argv[2] + f"/{number}", "wb").close()
signal.pause()
"""


async def guarded(
    rig: Rig, provider: SandboxProvider, code: str, limits: Limits, **more: Any
) -> LimitedHandle:
    """A sandbox of `provider` with `limits` on a machine without control groups."""
    guard = LimitMonitor(period=0.01, find=lambda: None)
    return await guard.start(provider, rig.spec(provider, code, limits=limits), **more)


async def end_of(sandbox: LimitedHandle) -> str:
    """The limit that it was ended for; no process of it is left."""
    try:
        async with asyncio.timeout(DEADLINE):
            ended = await sandbox.wait()
    finally:
        sandbox.kill()
    assert usage.below(usage.table(), sandbox.pid) == []
    return ended.exceeded


@pytest.mark.requirement("limit-exceeded-ended")
@every_provider
async def test_processes_that_take_too_much_memory_together_are_ended(
    rig: Rig, provider: SandboxProvider
):
    sandbox = await guarded(rig, provider, CROWD, Limits(memory=64 * MIB))

    assert await end_of(sandbox) == "memory limit of 64 MiB exceeded"


@every_provider
async def test_pages_that_processes_share_are_counted_once(rig: Rig, provider: SandboxProvider):
    code = """
kept = bytearray(b"x" * (24 << 20))
ended = [os.fork() for _ in range(4)]
if 0 in ended:
    signal.pause()
say("all there")
hold()
"""
    sandbox = await guarded(rig, provider, code, Limits(memory=64 * MIB))

    assert await rig.hear() == "all there"
    known = [pid for pid, _ in usage.below(usage.table(), sandbox.pid)]
    assert usage.memory(known, 64 * MIB) < 64 * MIB
    assert (await sandbox.stop(0)).exceeded == ""


@pytest.mark.requirement("limit-exceeded-ended")
@every_provider
async def test_a_program_that_forks_on_is_ended(rig: Rig, provider: SandboxProvider):
    sandbox = await guarded(rig, provider, BOMB, Limits(processes=20))

    assert await end_of(sandbox) == "limit of 20 processes exceeded"


@pytest.mark.requirement("limit-exceeded-ended")
@pytest.mark.parametrize("code", [FILLER, EMPTY_FILES], ids=["large files", "empty files"])
@every_provider
async def test_a_program_that_fills_the_disk_is_ended(
    rig: Rig, provider: SandboxProvider, code: str
):
    sandbox = await guarded(rig, provider, code, Limits(disk=8 * MIB))

    assert await end_of(sandbox) == "disk limit of 8 MiB exceeded"


HIDDEN_DEEP = """
os.chdir(sys.argv[2])
for level in range(30):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
for number in range(100):
    with open(str(number), "wb") as file:
        file.write(b"x" * (1 << 20))
signal.pause()
"""


@pytest.mark.requirement("limit-exceeded-ended")
@pytest.mark.requirement("mend-disk-counted")
async def test_what_lies_below_longer_paths_than_the_system_takes_is_counted(rig: Rig):
    sandbox = await guarded(rig, BubblewrapProvider(), HIDDEN_DEEP, Limits(disk=8 * MIB))

    assert await end_of(sandbox) == "disk limit of 8 MiB exceeded"


@pytest.mark.requirement("limit-exceeded-ended")
async def test_folders_too_deep_to_be_counted_end_the_program_in_words(rig: Rig):
    code = f"""
os.chdir(sys.argv[2])
for level in range({usage.DEEPEST + 1}):
    os.mkdir("d")
    os.chdir("d")
signal.pause()
"""
    sandbox = await guarded(rig, BubblewrapProvider(), code, Limits(disk=8 * MIB))

    assert await end_of(sandbox) == "disk limit of 8 MiB exceeded: its folders cannot be counted"


@every_provider
async def test_a_single_file_cannot_be_larger_than_the_limit(rig: Rig, provider: SandboxProvider):
    code = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    with open(sys.argv[2] + "/file", "wb") as file:
        file.truncate(9 << 20)
except OSError as error:
    say(error.errno)
else:
    say(0)
hold()
"""
    sandbox = await guarded(rig, provider, code, Limits(disk=8 * MIB))

    assert await rig.hear() == 27  # EFBIG
    assert (await sandbox.stop(0)).exceeded == ""


@pytest.mark.requirement("limit-exceeded-ended")
@every_provider
async def test_a_program_is_ended_when_its_time_is_over(rig: Rig, provider: SandboxProvider):
    sandbox = await guarded(rig, provider, "hold()", Limits(wall_seconds=60), elapsed=59.9)

    assert await end_of(sandbox) == "time limit of 60 s exceeded"


async def test_at_the_end_of_its_time_a_program_may_end_by_itself(rig: Rig):
    code = """
signal.signal(signal.SIGTERM, lambda *_: (say("goodbye"), os._exit(7)))
say("there")
hold()
hold()
"""
    provider = BubblewrapProvider()
    sandbox = await guarded(rig, provider, code, Limits(wall_seconds=2), grace=DEADLINE)

    assert await rig.hear() == "there"
    assert await rig.hear() == "goodbye"
    ended = await sandbox.wait()
    assert (ended.code, ended.exceeded) == (7, "time limit of 2 s exceeded")


@every_provider
async def test_a_program_within_its_limits_is_left_alone(rig: Rig, provider: SandboxProvider):
    limits = Limits(memory=256 * MIB, processes=50, disk=64 * MIB, wall_seconds=600)
    sandbox = await guarded(rig, provider, "say('done')", limits)

    assert await rig.hear() == "done"
    ended = await sandbox.wait()
    assert (ended.code, ended.exceeded) == (0, "")


async def test_folders_in_memory_count_as_memory(rig: Rig):
    code = """
for number in range(12):
    with open(f"/tmp/{number}", "wb") as file:
        file.write(b"x" * (4 << 20))
with open("/dev/shm/more", "wb") as file:
    file.write(b"x" * (24 << 20))
signal.pause()
"""
    sandbox = await guarded(rig, BubblewrapProvider(), code, Limits(memory=64 * MIB))

    assert await end_of(sandbox) == "memory limit of 64 MiB exceeded"


@pytest.mark.requirement("sandbox-partial-stated")
async def test_a_share_of_the_processor_without_control_groups_is_said_not_to_be_enforced(rig: Rig):
    limits = Limits(memory=256 * MIB, cpu_percent=50)
    sandbox = await guarded(rig, BubblewrapProvider(), "hold()", limits)

    assert sandbox.unenforced == ("cpu_percent",)
    await sandbox.stop(0)


async def test_a_look_that_fails_ends_the_sandbox_and_is_not_hidden(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    def broken() -> usage.Table:
        raise RuntimeError("broken")

    monkeypatch.setattr(usage, "table", broken)
    sandbox = await guarded(rig, BubblewrapProvider(), "hold()", Limits(processes=20))

    with pytest.raises(EnvironmentFault, match="broken"):
        await sandbox.wait()
