"""Control groups: what is written into one and read from it, and, where this machine lets tests make one, a real one.

The interface files are stood in for by plain ones where the kernel here has no controllers to give.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from postroom.errors import SandboxUnavailable
from postroom.sandbox import cgroups, usage
from postroom.sandbox.bubblewrap import BubblewrapProvider
from postroom.sandbox.cgroups import Group, Groups
from postroom.sandbox.limit_monitor import LimitMonitor
from postroom.sandbox.plain import PlainProvider
from postroom.sandbox.port import Limits, SandboxProvider
from tests.sandbox.rig import Rig

pytestmark = pytest.mark.anyio

FILES = ("memory.max", "memory.oom.group", "pids.max", "cpu.max", "cgroup.procs")
LIMITS = Limits(memory=64 << 20, processes=20, cpu_percent=50)


def stand_in(folder: Path, **events: str) -> Group:
    folder.mkdir(exist_ok=True)
    for name in FILES:
        (folder / name).touch()
    for name, content in events.items():
        (folder / f"{name}.events").write_text(content)
    return Group(folder)


class StandIns(Groups):
    """Makes groups of plain files."""

    def make(self, limits: Limits) -> Group:
        group = stand_in(self.place / "group")
        group.set(limits)
        return group


def test_limits_are_written_as_the_kernel_reads_them(tmp_path: Path):
    group = stand_in(tmp_path / "group")

    group.set(LIMITS)

    written = {name: (group.folder / name).read_text().strip() for name in FILES}
    assert written == {
        "memory.max": str(64 << 20),
        "memory.oom.group": "1",
        "pids.max": "21",
        "cpu.max": "50000 100000",
        "cgroup.procs": "",
    }


def test_swap_is_closed_where_it_is_counted(tmp_path: Path):
    group = stand_in(tmp_path / "group")
    (group.folder / "memory.swap.max").touch()

    group.set(LIMITS)

    assert (group.folder / "memory.swap.max").read_text() == "0\n"


@pytest.mark.parametrize(
    "memory, pids, found",
    [
        ("low 0\nhigh 0\nmax 9\noom 1\noom_kill 0\n", "max 0\n", (False, False)),
        ("low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\n", "max 0\n", (True, False)),
        ("oom_kill 0\n", "max 7\n", (False, True)),
        ("", "", (False, False)),
        ("oom_kill many\n", "max\n", (False, False)),
    ],
)
def test_events_tell_which_limit_the_kernel_has_enforced(
    tmp_path: Path, memory: str, pids: str, found: tuple[bool, bool]
):
    group = stand_in(tmp_path / "group", memory=memory, pids=pids)

    assert (group.out_of_memory, group.out_of_processes) == found


def test_a_group_that_the_kernel_refuses_is_an_error_and_is_removed(tmp_path: Path):
    with pytest.raises(SandboxUnavailable, match="no control group can be made"):
        Groups(tmp_path, cpu=True).make(LIMITS)

    assert list(tmp_path.iterdir()) == []


def test_groups_of_a_maker_that_is_gone_are_removed_and_no_others(tmp_path: Path):
    mine = Groups(tmp_path, cpu=True)
    with subprocess.Popen(["/bin/true"]) as gone:
        gone.wait()
    kept = [f"{cgroups.PREFIX}{mine.owner}-1", "postroom-backup", "user.slice"]
    stale = [f"{cgroups.PREFIX}{gone.pid}-123-4", f"{cgroups.PREFIX}{os.getpid()}-1-1"]
    for name in (*kept, *stale):
        (tmp_path / name).mkdir()

    cgroups.remove_stale(tmp_path)

    assert {folder.name for folder in tmp_path.iterdir()} == set(kept)


@pytest.mark.parametrize(
    "event, content, said",
    [
        ("memory", "oom_kill 1\n", "memory limit of 64 MiB exceeded"),
        ("pids", "max 3\n", "limit of 20 processes exceeded"),
    ],
)
async def test_a_sandbox_that_the_kernel_stopped_at_a_limit_ends_with_that(
    rig: Rig, tmp_path: Path, event: str, content: str, said: str
):
    guard = LimitMonitor(period=0.01, find=lambda: StandIns(tmp_path, cpu=True))
    code = "say('there')\nhold()\n"
    sandbox = await guard.start(PlainProvider(), rig.spec(PlainProvider(), code, limits=LIMITS))
    assert await rig.hear() == "there"
    assert (tmp_path / "group" / "cgroup.procs").read_text() == "0\n"  # "the writer joins"
    assert sandbox.unenforced == ()

    (tmp_path / "group" / f"{event}.events").write_text(content)
    if event == "memory":
        sandbox.kill()  # as the kernel does

    assert (await sandbox.wait()).exceeded == said


async def test_without_the_cpu_controller_a_share_is_said_not_to_be_enforced(
    rig: Rig, tmp_path: Path
):
    guard = LimitMonitor(find=lambda: StandIns(tmp_path, cpu=False))

    sandbox = await guard.start(PlainProvider(), rig.spec(PlainProvider(), "hold()", limits=LIMITS))

    assert sandbox.unenforced == ("cpu_percent",)
    await sandbox.stop(0)


# ── a real one ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def real() -> Iterator[Group]:
    """A control group below the one of the tests; it may have no controllers."""
    places = cgroups._candidates()
    if not places:
        pytest.skip("no control groups of version 2 are mounted")
    folder = places[0] / f"{cgroups.PREFIX}test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"tests may make no control group here: {error.strerror}")
    yield Group(folder)
    with suppress(OSError):
        folder.rmdir()


@pytest.mark.requirement("limit-exceeded-ended")
@pytest.mark.parametrize("provider", [BubblewrapProvider(), PlainProvider()], ids=lambda p: p.name)
async def test_a_sandbox_is_in_its_group_from_the_first_and_leaves_none(
    rig: Rig, real: Group, provider: SandboxProvider
):
    code = "os.fork()\nsay('there')\nhold()\n"
    sandbox = await provider.start(rig.spec(provider, code, group=real.folder))
    assert await rig.hear() == "there"
    assert await rig.hear() == "there"

    inside = {int(pid) for pid in (real.folder / "cgroup.procs").read_text().split()}
    assert inside == {sandbox.pid, *(pid for pid, _ in usage.below(usage.table(), sandbox.pid))}

    await real.remove()
    await sandbox.wait()
    assert not real.folder.exists()


def test_a_place_that_is_found_holds_and_is_left_clean():
    groups = cgroups.find()
    if groups is None:
        pytest.skip("this machine lets Postroom make no control group that bounds memory")
    assert not list(groups.place.glob(f"{cgroups.PREFIX}{groups.owner}-*"))


@pytest.mark.parametrize("hog", ["memory", "processes"])
async def test_a_real_group_ends_what_goes_over_its_limit(rig: Rig, hog: str):
    if cgroups.find() is None:
        pytest.skip("this machine lets Postroom make no control group that bounds memory")
    code = {
        "memory": "bytearray(b'x') * (128 << 20)\nhold()",
        "processes": "for _ in range(40):\n    os.fork() or hold()\nhold()",
    }[hog]
    provider = BubblewrapProvider()
    sandbox = await LimitMonitor(period=0.01).start(
        provider, rig.spec(provider, code, limits=LIMITS)
    )

    ended = await sandbox.wait()

    assert ended.exceeded
