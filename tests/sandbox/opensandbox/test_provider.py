"""The provider with the official SDK against the double, whose containers are real sandboxes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from postroom.errors import SandboxUnavailable
from postroom.sandbox.limit_monitor import LimitMonitor
from postroom.sandbox.opensandbox.provider import OpenSandboxProvider
from postroom.sandbox.opensandbox.server import close, connection, create, load
from postroom.sandbox.port import Level, Limits, SandboxSpec
from postroom.sandbox.select import AUTO, select
from tests.sandbox.opensandbox.conftest import KEY, Bench, until

pytestmark = pytest.mark.anyio

PROGRAM = """
import os, pathlib, signal, sys, time
config = pathlib.Path(os.environ["CONFIG"])
print(oct(config.stat().st_mode & 0o777), len(config.read_text()), pathlib.Path("note").read_text())
if sys.argv[1:] == ["exit"]:
    sys.exit(3)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0) if sys.argv[1:] != ["deaf"] else None)
print("up", flush=True)
while True:
    time.sleep(0.05)
"""
SECRET = "s-77c2b0aa91"


def worker(bench: Bench, provider: OpenSandboxProvider, *words: str) -> SandboxSpec:
    (bench.folder / "workspace" / "note").write_text("a note")
    (bench.folder / "workspace" / "program.py").write_text(PROGRAM)
    paths = provider.paths(bench.draft())
    config = f"{paths.secrets}/sidecar.json"
    return replace(
        bench.draft(),
        argv=(paths.python, "-P", f"{paths.workspace}/program.py", *words),
        env={"CONFIG": config, "PATH": "/usr/bin:/bin"},
        workdir=paths.workspace,
        secrets={config: SECRET.encode()},
    )


async def printed(bench: Bench, text: str) -> None:
    await until(lambda: text in bench.log())


@pytest.mark.requirement("opensandbox-lifecycle")
async def test_a_container_that_reaches_the_gateway_alone_is_enforced(bench: Bench) -> None:
    provider = OpenSandboxProvider(bench.remote)
    found = await provider.probe()
    assert found.level is Level.ENFORCED, found
    assert provider.holes == frozenset()
    assert not bench.double.containers  # that of the trial is gone


@pytest.mark.parametrize("argv", [True, False])
@pytest.mark.requirement("opensandbox-lifecycle")
async def test_a_program_runs_with_its_files_and_ends_when_told(bench: Bench, argv: bool) -> None:
    bench.double.behaviour.argv = argv
    provider = OpenSandboxProvider(bench.remote)
    handle = await provider.start(worker(bench, provider))
    await printed(bench, "up")
    assert bench.log() == f"0o600 {len(SECRET)} a note\nup\n"
    ended = await handle.stop(20)
    assert ended.code == 0
    assert not bench.double.containers
    seen = "\n".join(bench.double.seen)
    assert "program.py" in seen
    for secret in (SECRET, KEY):
        assert secret not in seen


async def test_the_exit_code_of_a_program_is_its_own(bench: Bench) -> None:
    provider = OpenSandboxProvider(bench.remote)
    handle = await provider.start(worker(bench, provider, "exit"))
    assert (await handle.wait()).code == 3
    assert not bench.double.containers


async def test_a_program_that_does_not_end_goes_with_its_container(bench: Bench) -> None:
    provider = OpenSandboxProvider(bench.remote)
    handle = await provider.start(worker(bench, provider, "deaf"))
    await printed(bench, "up")
    assert (await handle.stop(0.2)).signal == 9
    assert not bench.double.containers


async def test_a_container_that_is_gone_is_an_end(bench: Bench) -> None:
    provider = OpenSandboxProvider(bench.remote)
    handle = await provider.start(worker(bench, provider))
    (box,) = bench.double.containers.values()
    assert box.handle is not None
    del bench.double.containers[box.id]
    await bench.double._end(box)
    assert (await handle.wait()).signal == 9


@pytest.mark.requirement("opensandbox-lifecycle")
async def test_a_container_is_renewed_while_it_lives_and_expires_when_nobody_renews_it(
    bench: Bench,
) -> None:
    remote = replace(bench.remote, lifetime=3.0)
    provider = OpenSandboxProvider(remote)
    handle = await provider.start(worker(bench, provider))
    (box,) = bench.double.containers.values()
    await until(lambda: box.renewals >= 3)
    assert box.id in bench.double.containers
    handle._end.cancel()  # as if the post room had been killed: nobody looks after it
    await until(lambda: box.id not in bench.double.containers)


@pytest.mark.parametrize(
    "behaviour, reason",
    [
        ({"enforcement": "dns"}, "its mode is dns"),
        ({"enforcement": ""}, "its mode is ?"),
        ({"policy": {}}, "default None"),
        ({"policy": {"defaultAction": "allow", "egress": []}}, "default allow"),
        (
            {
                "policy": {
                    "defaultAction": "deny",
                    "egress": [
                        {"action": "allow", "target": "localhost"},
                        {"action": "allow", "target": "*.example.com"},
                    ],
                }
            },
            "open to *.example.com, localhost",
        ),
        ({"open": True}, "tcp 127.0.0.1"),
    ],
    ids=["dns", "silent", "empty", "allow", "more", "open"],
)
@pytest.mark.requirement("opensandbox-lifecycle")
async def test_a_container_whose_egress_control_does_not_hold_is_refused(
    bench: Bench, behaviour: dict[str, object], reason: str
) -> None:
    for name, value in behaviour.items():
        setattr(bench.double.behaviour, name, value)
    provider = OpenSandboxProvider(bench.remote)
    found = await provider.probe()
    assert found.level is Level.NONE
    assert reason in found.detail, found.detail
    assert not bench.double.containers
    if {"enforcement", "open"}.isdisjoint(behaviour):  # the rest is the same for all of them
        return
    if "open" not in behaviour:
        with pytest.raises(SandboxUnavailable):
            await provider.start(worker(bench, provider))
        assert not any("files/upload" in line for line in bench.double.seen)
    with pytest.raises(SandboxUnavailable):
        await select("opensandbox", remote=bench.remote, at_least=Level.PARTIAL)


@pytest.mark.requirement("opensandbox-lifecycle")
async def test_what_an_earlier_life_has_left_is_removed_and_nothing_else(bench: Bench) -> None:
    sdk = await load()
    earlier = await create(replace(bench.remote, run="before"), Limits())
    other = await create(replace(bench.remote, room="o" * 32, run="before"), Limits())
    stranger = await sdk.Sandbox.create(
        "python:3.13", timeout=timedelta(minutes=5), connection_config=connection(bench.remote)
    )
    await OpenSandboxProvider(bench.remote).probe()
    left = set(bench.double.containers)
    for sandbox in (earlier, other, stranger):
        await close(sandbox.connection_config)
    assert left == {other.id, stranger.id}


async def test_the_limits_of_a_container_are_those_of_the_template(bench: Bench) -> None:
    provider = OpenSandboxProvider(bench.remote)
    limits = Limits(memory=300 << 20, processes=20, cpu_percent=50, disk=1 << 30)
    guard = LimitMonitor(period=0.05, find=lambda: None)
    handle = await guard.start(provider, replace(worker(bench, provider), limits=limits))
    await printed(bench, "up")
    assert handle.unenforced == ("processes", "disk_mb")
    (box,) = bench.double.containers.values()
    assert box.asked["resourceLimits"] == {"cpu": "500m", "memory": "300Mi"}
    assert (await handle.stop(20)).code == 0


async def test_a_wrong_key_says_so_and_is_not_repeated(bench: Bench) -> None:
    found = await OpenSandboxProvider(replace(bench.remote, key="wr0ng-key")).probe()
    assert found.level is Level.NONE
    assert "the API key is missing or wrong" in found.detail
    assert "wr0ng-key" not in found.detail + found.remedy + repr(bench.remote)


async def test_nothing_runs_where_no_server_is_configured() -> None:
    found = await OpenSandboxProvider(None).probe()
    assert found.level is Level.NONE
    assert "POSTROOM_OPENSANDBOX_URL" in found.remedy


async def test_auto_never_takes_another_machine(bench: Bench) -> None:
    chosen = await select(AUTO, remote=bench.remote)
    assert chosen.provider.name != "opensandbox"
    assert bench.double.made == 0


async def test_the_environment_of_a_container_holds_no_secret(bench: Bench) -> None:
    provider = OpenSandboxProvider(bench.remote)
    handle = await provider.start(worker(bench, provider))
    created = [json.loads(line) for line in bench.double.seen if line.startswith('{"')]
    asked = next(one for one in created if "networkPolicy" in one)
    assert asked.get("env") in (None, {})
    assert asked["secureAccess"] is True
    assert asked["networkPolicy"] == {
        "defaultAction": "deny",
        "egress": [{"action": "allow", "target": "localhost"}],
    }
    assert os.environ.get("OPENSANDBOX_DISABLE_METRICS") is None  # it is switched off by the client
    await handle.stop(5)


async def test_nobody_waits_for_the_official_client_who_does_not_use_it() -> None:
    program = (
        "import sys, postroom.sandbox.select; "
        "sys.exit('opensandbox' in sys.modules or 'httpx' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await process.wait() == 0
