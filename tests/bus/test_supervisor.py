"""The server's supervision: it comes back after a crash, until there are too many."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.bus import supervisor
from postroom.bus.embedded import EmbeddedServer
from postroom.bus.server_config import ServerConfig
from postroom.bus.supervisor import Supervisor
from postroom.errors import PortTaken, ServerFailed, StateUnwritable
from postroom.identity.trust import Trust
from tests.bus.embedding import PATIENCE, greeting, make_config

pytestmark = pytest.mark.anyio


class Watched:
    """A supervisor at work, and its servers after each restart."""

    def __init__(self, config: ServerConfig) -> None:
        self.supervisor = Supervisor(config, self._note)
        self._restarted: asyncio.Queue[EmbeddedServer] = asyncio.Queue()
        self.run: asyncio.Task[None]

    async def _note(self, server: EmbeddedServer) -> None:
        await self._restarted.put(server)

    async def start(self) -> None:
        await self.supervisor.start()
        self.run = asyncio.create_task(self.supervisor.run())

    def crash(self) -> EmbeddedServer:
        self.supervisor.server.kill()
        return self.supervisor.server

    async def next(self) -> EmbeddedServer:
        return await asyncio.wait_for(self._restarted.get(), PATIENCE)

    async def end(self) -> None:
        """Wait for the end of the supervision, and raise what it ended with."""
        await asyncio.wait_for(self.run, PATIENCE)


@pytest.fixture
def config(tmp_path: Path) -> ServerConfig:
    return make_config(Trust.load_or_create(tmp_path / "keys"), tmp_path)


@pytest.fixture
async def watched(config: ServerConfig) -> AsyncIterator[Watched]:
    made = Watched(config)
    await made.start()
    yield made
    await made.supervisor.stop()
    await asyncio.wait([made.run], timeout=PATIENCE)


@pytest.mark.requirement("all-kills-counted")
async def test_a_crashed_server_comes_back_on_the_same_port(watched: Watched):
    first = watched.crash()

    second = await watched.next()

    assert second.url == first.url
    assert second.pid != first.pid
    assert watched.supervisor.server is second
    assert watched.supervisor.restarts == 1
    assert (await greeting(second))["server_id"] == second.server_id


@pytest.mark.requirement("background-supervised")
async def test_too_many_crashes_end_the_supervision_with_the_last_words(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.001)
    for _ in range(supervisor.MAX_CRASHES):
        watched.crash()
        await watched.next()
    last = watched.crash()

    with pytest.raises(ServerFailed, match="Server is ready"):
        await watched.end()
    assert watched.supervisor.server is last


async def test_crashes_that_lie_far_apart_are_borne(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(supervisor, "CRASH_WINDOW", 0.0)

    for _ in range(supervisor.MAX_CRASHES + 1):
        watched.crash()
        await watched.next()

    assert watched.supervisor.server.running


async def test_a_restart_that_keeps_failing_is_reported_for_its_own_reason(
    config: ServerConfig, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 0.001)
    watching = Supervisor(config)
    server = await watching.start()
    server.kill()
    await asyncio.wait_for(server.wait(), PATIENCE)

    with socket.create_server((config.host, server.port)), pytest.raises(PortTaken):
        await asyncio.wait_for(watching.run(), PATIENCE)


@pytest.mark.requirement("disk-full-refused")
async def test_a_server_is_not_started_while_its_disk_is_full(
    config: ServerConfig, monkeypatch: pytest.MonkeyPatch
):
    full, looked = True, asyncio.Event()

    def space(_folder: Path) -> None:
        if full:
            looked.set()
            raise StateUnwritable("full")

    monkeypatch.setattr(supervisor, "INTERVAL", 0.001)
    restarted: asyncio.Queue[EmbeddedServer] = asyncio.Queue()
    watching = Supervisor(config, restarted.put, space)
    first = await watching.start()
    run = asyncio.create_task(watching.run())
    first.kill()
    for _ in range(supervisor.MAX_CRASHES + 1):
        looked.clear()
        await asyncio.wait_for(looked.wait(), PATIENCE)
    assert restarted.empty()

    full = False
    second = await asyncio.wait_for(restarted.get(), PATIENCE)
    await watching.stop()
    await asyncio.wait_for(run, PATIENCE)

    assert second.url == first.url


@pytest.mark.requirement("disk-full-refused")
async def test_starts_that_fail_for_want_of_space_are_no_crashes(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
):
    """A disk that fills again between the look at it and the start."""
    start, failures = EmbeddedServer.start, supervisor.MAX_CRASHES + 1

    async def refused(config: ServerConfig) -> EmbeddedServer:
        nonlocal failures
        failures -= 1
        if failures < 0:
            return await start(config)
        raise StateUnwritable("cannot write to x: No space left on device")

    monkeypatch.setattr(supervisor, "INTERVAL", 0.001)
    monkeypatch.setattr(EmbeddedServer, "start", refused)
    watched.crash()

    assert (await watched.next()).running


async def test_a_stop_ends_the_server_and_its_supervision(watched: Watched):
    await watched.supervisor.stop()
    await watched.end()

    assert not watched.supervisor.server.running
    assert watched.supervisor.restarts == 0


async def test_a_stop_while_a_restart_is_awaited_starts_nothing(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(supervisor, "FIRST_DELAY", 1e6)
    monkeypatch.setattr(supervisor, "LONGEST_DELAY", 1e6)
    await asyncio.wait_for(watched.crash().wait(), PATIENCE)

    await watched.supervisor.stop()
    await watched.end()

    assert watched.supervisor.restarts == 0


async def test_a_stop_during_a_restart_ends_the_new_server(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
):
    start, starting = EmbeddedServer.start, asyncio.Event()

    async def noticed(config: ServerConfig) -> EmbeddedServer:
        starting.set()
        return await start(config)

    monkeypatch.setattr(EmbeddedServer, "start", noticed)
    first = watched.crash()
    await asyncio.wait_for(starting.wait(), PATIENCE)
    await watched.supervisor.stop()
    await watched.end()

    assert watched.supervisor.server is not first
    assert not watched.supervisor.server.running


async def test_a_cancelled_supervision_ends_the_server(watched: Watched):
    watched.crash()
    server = await watched.next()  # so it is at work
    watched.run.cancel()

    with pytest.raises(asyncio.CancelledError):
        await watched.end()
    assert not server.running


async def test_a_supervision_ends_with_its_callbacks_error_and_leaves_no_server(
    config: ServerConfig,
):
    async def fail(_: EmbeddedServer) -> None:
        raise ValueError

    watching = Supervisor(config, fail)
    (await watching.start()).kill()

    with pytest.raises(ValueError):
        await asyncio.wait_for(watching.run(), PATIENCE)
    assert not watching.server.running


async def test_a_server_that_was_never_started_is_not_supervised(config: ServerConfig):
    with pytest.raises(ServerFailed):
        _ = Supervisor(config).server
