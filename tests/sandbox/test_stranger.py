"""Another account of this machine at the canaries: it neither fails the trial of a wall, nor hides that one leaks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.errors import SandboxUnavailable
from postroom.sandbox import select, selftest, wall_test
from postroom.sandbox.canary import CanaryServer
from postroom.sandbox.landlock import LandlockProvider
from postroom.sandbox.limits import SCRIPT
from postroom.sandbox.plain import PlainProvider
from postroom.sandbox.port import Capability, Level, SandboxProvider, SandboxSpec
from postroom.sandbox.reaped import ReapedHandle
from postroom.sandbox.selftest import WallReport
from postroom.sandbox.wall_test import try_wall
from tests.sandbox.providers import WALLS, needs_landlock, needs_root
from tests.stranger import stranger

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("sandbox-stranger-unbelieved"), needs_root]


class Leaky(PlainProvider):
    """No wall, with the word of one."""

    name = "leaky"
    states = Level.PARTIAL
    holes = frozenset({"socket", "file", "content", "process", "secret", "kernel"})


@pytest.mark.parametrize("how", ["touch", "hold"])
@pytest.mark.parametrize("provider", WALLS)
async def test_a_strangers_visits_do_not_fail_the_trial_of_a_wall(
    provider: SandboxProvider, how: str
):
    with stranger(os.getpid(), how) as other:
        found = [await try_wall(provider) for _ in range(3)]

        assert other.ends() > 0
    assert {capability.level for capability in found} == {provider.states}, found


@pytest.mark.parametrize("how", ["touch", "hold"])
async def test_a_wall_that_leaks_is_found_out_while_a_stranger_floods_the_canaries(how: str):
    with stranger(os.getpid(), how) as other:
        capability = await try_wall(Leaky())

        assert other.ends() > 0
    assert capability.level is Level.NONE
    assert "from inside, these could be reached: tcp" in capability.detail


async def test_a_stranger_is_logged_with_its_user_and_the_secret_is_not(
    caplog: pytest.LogCaptureFixture,
):
    async with CanaryServer() as server:
        with stranger(os.getpid()) as other:
            report = await wall_test.self_test(PlainProvider(), server)
            assert other.ends() > 0
        await server.settle()
        secret = server.canaries("").secret

    assert report.reached_kinds >= {"tcp", "udp", "abstract"}
    assert server.strangers.total() > 0
    assert server.visits["udp"] == sum(canary.kind == "udp" for canary in report.canaries)
    assert "canary of the wall test: abstract, by uid 12345, process " in caplog.text
    assert secret not in caplog.text


async def test_no_account_sees_the_secret_among_the_arguments():
    seen: list[str] = []

    class Spied(PlainProvider):
        async def start(self, spec: SandboxSpec) -> ReapedHandle:
            seen.extend(spec.argv)
            return await super().start(spec)

    async with CanaryServer() as server:
        await wall_test.self_test(Spied(), server)
        secret = server.canaries("").secret

        assert server.visits.total() > 0
    assert seen
    assert not any(secret in word for word in seen)


def _fill(canaries: selftest.Canaries) -> list[socket.socket]:
    """Connections without end, while nobody accepts any."""
    held = []
    for _ in range(300):
        for host, port in canaries.tcp:
            held.append(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
            held[-1].setblocking(False)
            held[-1].connect_ex((host, port))
        held.append(socket.socket(socket.AF_UNIX))
        held[-1].setblocking(False)
        held[-1].connect_ex(f"\0{canaries.abstract[0]}")
    return held


async def test_a_listener_without_room_is_no_proof_that_it_is_out_of_reach(tmp_path: Path):
    async with CanaryServer() as server:
        canaries = server.canaries(str(server.gateway))
        held = _fill(canaries)
        words = [*SCRIPT, selftest.__file__, canaries.to_json(), str(tmp_path / "none")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)  # noqa: ASYNC221 (nobody is to accept)
        report = WallReport.from_json(done.stdout)
        found = {canary.kind: canary for canary in report.canaries}

        assert (found["tcp"].reached, found["tcp"].silent) == (False, True)
        assert server.doubts(report)
        assert found["abstract"].reached
        assert not server.doubts(replace(report, canaries=()))
        for sock in held:
            sock.close()


async def test_a_trial_that_was_disturbed_is_repeated(monkeypatch: pytest.MonkeyPatch):
    disturbed = [True, True]
    monkeypatch.setattr(CanaryServer, "doubts", lambda *_: disturbed.pop() if disturbed else False)

    assert (await try_wall(LandlockProvider())).level is Level.PARTIAL
    assert not disturbed


@needs_landlock
@pytest.mark.parametrize("name", ["auto", "landlock"])
async def test_a_trial_that_is_always_disturbed_is_refused_without_a_weaker_wall(
    monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setattr(select, "_chosen", {})
    monkeypatch.setattr(CanaryServer, "doubts", lambda *_: True)

    with pytest.raises(SandboxUnavailable, match="others kept the canaries busy") as refused:
        await select.select(name, at_least=Level.PARTIAL)
    assert "none" not in refused.value.remedy
    assert not select._chosen


def test_a_report_of_before_can_be_read():
    canary = {"kind": "tcp", "target": "127.0.0.1 1", "reached": True}
    report = WallReport.from_json(json.dumps({"canaries": [canary], "gateway": True}))

    assert report.reached == ("tcp 127.0.0.1 1",)
    assert Capability("x", Level.NONE, "").doubtful is False
