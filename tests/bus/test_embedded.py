"""The embedded server: starting, refusing to start, its lock, its settings, its end. Real processes throughout."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import stat
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from nats.js.api import StorageType, StreamConfig
from nats.js.errors import APIError

from postroom.bus import embedded, server_config
from postroom.bus.embedded import EmbeddedServer
from postroom.bus.server_config import ServerConfig
from postroom.errors import StoreLocked
from postroom.identity.trust import Trust
from tests.bus.embedding import (
    PATIENCE,
    connected,
    ended,
    greeting,
    make_config,
    running,
    system_of,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust.load_or_create(tmp_path / "keys")


@pytest.fixture
def config(trust: Trust, tmp_path: Path) -> ServerConfig:
    return make_config(trust, tmp_path)


@pytest.fixture
async def server(config: ServerConfig) -> AsyncIterator[EmbeddedServer]:
    async with running(config) as started:
        yield started


def gone(pid: int) -> bool:
    """Whether the process ends within the time that a test has for it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], PATIENCE)[0])
    finally:
        os.close(descriptor)


# Starting and stopping.


async def test_a_started_server_greets_clients_on_its_port(server: EmbeddedServer):
    info = await greeting(server)

    assert info["port"] == server.port
    assert server.url == f"nats://127.0.0.1:{server.port}"
    assert (info["server_id"], info["version"]) == (server.server_id, server.version)
    assert info["jetstream"] is True
    assert info["auth_required"] is True


async def test_the_greeting_names_no_other_addresses_that_would_lead_round_a_gateway(
    server: EmbeddedServer,
):
    assert "connect_urls" not in await greeting(server)


async def test_a_stopped_server_has_ended_cleanly(config: ServerConfig):
    server = await EmbeddedServer.start(config)

    assert await server.stop() == 0
    assert not server.running
    assert await server.wait() == 0
    assert await server.stop() == 0
    assert ended(server.pid)


async def test_a_killed_server_is_reported_by_its_signal(server: EmbeddedServer):
    server.kill()

    assert await asyncio.wait_for(server.wait(), PATIENCE) == -signal.SIGKILL
    server.kill()  # nothing more to kill


async def test_a_server_that_does_not_end_when_asked_is_killed(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(embedded, "STOP_GRACE", 0.2)
    os.kill(server.pid, signal.SIGSTOP)

    assert await asyncio.wait_for(server.stop(), PATIENCE) == -signal.SIGKILL


async def test_an_interrupt_at_the_terminal_does_not_reach_the_server(server: EmbeddedServer):
    """What uses the server ends first; then the server is stopped."""
    assert os.getsid(server.pid) != os.getsid(0)


async def test_only_its_owner_can_read_what_the_server_keeps(server: EmbeddedServer):
    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    assert mode(server.config.folder) == 0o700
    assert mode(server.config.file) == 0o600
    assert mode(server.config.lock) == 0o600


async def test_no_monitoring_port_is_open(server: EmbeddedServer):
    (ports,) = server.config.ports.iterdir()

    assert set(json.loads(ports.read_text())) == {"nats"}


async def test_a_folder_with_unusual_characters_works(config: ServerConfig, tmp_path: Path):
    folder = tmp_path / 'Bücher "\\ $HOME {x} # 人'

    async with running(replace(config, folder=folder)) as server:
        assert server.config.log.is_file()


# Settings of the running server.


@pytest.mark.requirement("bus-ack-means-disk")
async def test_the_running_server_flushes_every_record_before_it_acknowledges(
    server: EmbeddedServer, trust: Trust
):
    async with system_of(server, trust) as system:
        assert await server.effective_sync_always(system) is True


async def test_the_reading_of_the_flush_setting_can_say_no(config: ServerConfig, trust: Trust):
    async with (
        running(replace(config, memory=True)) as server,
        system_of(server, trust) as system,
    ):
        assert await server.effective_sync_always(system) is False


async def test_a_throw_away_server_refuses_streams_on_disk(config: ServerConfig, trust: Trust):
    async with (
        running(replace(config, memory=True)) as server,
        connected(server, trust.core_credential()) as core,
    ):
        js = core.jetstream()
        kept = StreamConfig(name="S", subjects=["s"], storage=StorageType.MEMORY)
        await js.add_stream(kept)
        assert (await js.publish("s", b"x")).seq == 1

        with pytest.raises(APIError, match="storage"):
            await js.add_stream(StreamConfig(name="F", subjects=["f"], storage=StorageType.FILE))


async def test_a_message_over_the_limit_is_not_accepted(config: ServerConfig):
    async with running(replace(config, max_payload=4096)) as server:
        assert (await greeting(server))["max_payload"] == 4096


async def test_the_log_is_rotated_at_its_size(config: ServerConfig, trust: Trust):
    async with running(replace(config, log_bytes=2048)) as server:
        for _ in range(3):
            async with system_of(server, trust) as system:
                await system.flush()

        logs = sorted(path.name for path in config.folder.glob("nats-server.log*"))
    assert 2 <= len(logs) <= server_config.LOG_FILES


# The lock on the store.


@pytest.mark.requirement("state-lock-exclusive")
async def test_a_second_server_on_the_same_store_is_refused_and_told_who_has_it(
    server: EmbeddedServer,
):
    with pytest.raises(StoreLocked, match=f"pid {server.pid}"):
        await EmbeddedServer.start(replace(server.config, port=0))
    assert server.running


@pytest.mark.requirement("state-lock-exclusive")
async def test_a_server_that_is_about_to_end_is_waited_for(config: ServerConfig):
    async with running(config) as first, asyncio.TaskGroup() as tasks:
        patient = replace(first.config, lock_timeout=PATIENCE)
        starting = tasks.create_task(EmbeddedServer.start(patient))
        # Only a start that waits is still under way when others have been refused.
        with pytest.raises(StoreLocked):
            await EmbeddedServer.start(first.config)
        assert not starting.done()

        first.kill()

        second = await asyncio.wait_for(starting, PATIENCE)
        await second.stop()


@pytest.mark.requirement("all-kills-counted")
async def test_a_killed_server_starts_again_on_the_same_port_with_what_it_had_acknowledged(
    config: ServerConfig, trust: Trust
):
    async with running(config) as first, connected(first, trust.core_credential()) as core:
        js = core.jetstream()
        await js.add_stream(StreamConfig(name="S", subjects=["s"]))
        for _ in range(10):
            await js.publish("s", b"x")
        first.kill()
        await asyncio.wait_for(first.wait(), PATIENCE)

    async with running(first.config) as second, connected(second, trust.core_credential()) as core:
        assert second.port == first.port
        assert (await core.jetstream().stream_info("S")).state.messages == 10


async def test_port_files_that_killed_servers_left_are_not_believed(config: ServerConfig):
    config.ports.mkdir(parents=True)
    orphan = config.ports / "nats-server_1.ports"
    orphan.write_text('{"nats":["nats://127.0.0.1:1"]}')

    async with running(config) as server:
        assert server.port != 1
        assert not orphan.exists()


PARENT = """
import asyncio, json, sys
from pathlib import Path
from postroom.bus.embedded import EmbeddedServer
from postroom.bus.server_config import ServerConfig
from postroom.bus.server_config import explain_end, last_lines

async def main():
    given = json.load(sys.stdin)
    server = await EmbeddedServer.start(ServerConfig(Path(given.pop("folder")), **given))
    print(server.pid, flush=True)
    await server.wait()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the environment")
@pytest.mark.parametrize("chosen", ["", "3"])
async def test_the_server_works_on_one_core_unless_the_operator_chose(
    config: ServerConfig, monkeypatch: pytest.MonkeyPatch, chosen: str
):
    monkeypatch.delenv("GOMAXPROCS", raising=False)
    if chosen:
        monkeypatch.setenv("GOMAXPROCS", chosen)

    async with running(config) as server:
        environment = Path(f"/proc/{server.pid}/environ").read_bytes().split(b"\0")

    assert f"GOMAXPROCS={chosen or 1}".encode() in environment


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a child to its parent")
@pytest.mark.requirement("wall-dies-with-post-room")
async def test_the_server_dies_when_its_parent_is_killed_and_leaves_the_store_free(
    config: ServerConfig,
):
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PARENT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    given = {
        "folder": str(config.folder),
        "host": config.host,
        "port": 0,
        "operator_jwt": config.operator_jwt,
        "system_account": config.system_account,
        "preload": dict(config.preload),
    }
    parent.stdin.write(json.dumps(given).encode())
    parent.stdin.close()
    pid = int(await asyncio.wait_for(parent.stdout.readline(), PATIENCE))
    with pytest.raises(StoreLocked, match=f"pid {pid}"):
        await EmbeddedServer.start(config)

    parent.kill()
    await parent.wait()

    if not await asyncio.to_thread(gone, pid):
        os.kill(pid, signal.SIGKILL)
        pytest.fail("the server outlived its parent")
    async with running(config) as server:
        assert server.running
