"""What prevents a start of the embedded server, and that nothing is left of one that failed."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.bus import embedded
from postroom.bus.embedded import EmbeddedServer
from postroom.bus.server_config import ServerConfig, explain_end, last_lines
from postroom.errors import PortTaken, ServerFailed, StateUnwritable
from postroom.identity.trust import Trust
from tests.bus.embedding import PATIENCE, ended, make_config, running

pytestmark = pytest.mark.anyio


@pytest.fixture
def config(tmp_path: Path) -> ServerConfig:
    return make_config(Trust.load_or_create(tmp_path / "keys"), tmp_path)


@pytest.fixture
def taken(config: ServerConfig) -> Iterator[ServerConfig]:
    with socket.create_server((config.host, 0)) as other:
        yield replace(config, port=other.getsockname()[1])


async def test_a_taken_port_is_told_with_its_number_and_a_remedy(taken: ServerConfig):
    with pytest.raises(PortTaken, match=f"port {taken.port}") as caught:
        await EmbeddedServer.start(taken)
    assert caught.value.remedy


async def test_a_port_that_is_lost_between_the_question_and_the_start_is_told_too(
    taken: ServerConfig, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(embedded, "_check_port", lambda _: None)

    with pytest.raises(PortTaken, match=f"port {taken.port}"):
        await EmbeddedServer.start(taken)


async def test_an_address_that_is_not_this_machines_is_told(config: ServerConfig):
    with pytest.raises(ServerFailed, match=r"192\.0\.2\.1"):
        await EmbeddedServer.start(replace(config, host="192.0.2.1", port=4222))


async def test_a_folder_that_cannot_be_made_is_an_unwritable_state(
    config: ServerConfig, tmp_path: Path
):
    (tmp_path / "file").touch()

    with pytest.raises(StateUnwritable):
        await EmbeddedServer.start(replace(config, folder=tmp_path / "file" / "nats"))


async def test_a_store_that_the_server_cannot_make_is_an_unwritable_state(config: ServerConfig):
    config.folder.mkdir()
    config.store.touch()

    with pytest.raises(StateUnwritable, match="not a directory"):
        await EmbeddedServer.start(config)


async def test_a_configuration_that_the_server_refuses_is_shown_with_its_words(
    config: ServerConfig,
):
    with pytest.raises(ServerFailed, match="operator"):
        await EmbeddedServer.start(replace(config, operator_jwt="not.a.jwt"))


@pytest.mark.parametrize("timeout", [0.0, 0.001])
async def test_a_server_that_is_not_ready_in_time_is_ended(config: ServerConfig, timeout: float):
    slow = replace(config, start_timeout=timeout)
    with pytest.raises(ServerFailed, match="not ready"):
        await EmbeddedServer.start(slow)

    async with running(config) as server:  # the lock is free, so nothing was left behind
        assert server.running


async def test_a_cancelled_start_leaves_no_server(
    config: ServerConfig, monkeypatch: pytest.MonkeyPatch
):
    spawned = asyncio.Event()

    async def never_ready(*_: object) -> dict[str, object]:
        spawned.set()
        return await asyncio.Future()

    monkeypatch.setattr(embedded, "_ready", never_ready)
    starting = asyncio.create_task(EmbeddedServer.start(config))
    await asyncio.wait_for(spawned.wait(), PATIENCE)
    pid = int(config.lock.read_text())
    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting
    assert ended(pid)


def test_words_of_clients_in_the_log_cannot_drive_a_terminal(config: ServerConfig):
    config.folder.mkdir()
    config.log.write_bytes(b"[7] \x1b[2J evil \x07\xff\n[8] of another server\n")

    shown = last_lines(config, 7)

    assert shown.isprintable()
    assert "evil" in shown
    assert "another" not in shown


@pytest.mark.parametrize(
    "words",
    ["write /x: no space left on device", "open /x: Permission denied", "disk quota exceeded"],
)
def test_a_server_that_ended_for_lack_of_room_or_rights_is_an_unwritable_state(
    config: ServerConfig, words: str
):
    config.folder.mkdir()
    config.log.write_text(f"[7] [FTL] {words}\n")

    assert isinstance(explain_end(config, 7, 1), StateUnwritable)
    assert type(explain_end(config, 8, 1)) is ServerFailed  # those were another server's words


async def test_a_full_disk_is_an_unwritable_state_and_starts_nothing(
    config: ServerConfig, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(embedded.tempfile, "mkstemp", full)
        with pytest.raises(StateUnwritable, match="No space left"):
            await EmbeddedServer.start(config)

    async with running(config) as server:
        assert server.running
