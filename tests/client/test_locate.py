from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.client.locate import ServerAddress, locate
from postroom.errors import EnvironmentFault, NotRunning
from tests import near


def write(state: Path, content: object, mode: int = 0o600) -> Path:
    file = state / "server.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    file.chmod(mode)
    return file


def record(**changes: object) -> dict[str, object]:
    return {"url": "http://127.0.0.1:4280", "pid": os.getpid(), "token": "t0ken"} | changes


@pytest.fixture
def running(tmp_path: Path) -> Iterator[None]:
    """A post room has the folder open."""
    near.offer(tmp_path)
    yield
    near.withdraw(tmp_path)


@pytest.mark.usefixtures("running")
def test_a_running_post_room_is_found(tmp_path: Path):
    write(tmp_path, record(url="https://127.0.0.1:4280/"))
    found = locate(tmp_path)
    socket = str(tmp_path / "control.sock")
    assert found == ServerAddress(
        "https://127.0.0.1:4280", os.getpid(), "t0ken", socket=socket, owner=os.geteuid()
    )
    assert found.origin == "http://127.0.0.1:4280"  # over its socket


@pytest.mark.parametrize("folder", ["", "missing"])
def test_without_a_file_nothing_runs_and_the_remedy_is_to_start_it(tmp_path: Path, folder: str):
    with pytest.raises(NotRunning) as caught:
        locate(tmp_path / folder)
    assert caught.value.remedy == f"postroom --state {tmp_path / folder} up"


@pytest.mark.requirement("identity-keys-private")
def test_a_file_of_a_process_that_has_ended_is_not_believed(tmp_path: Path):
    """Whatever process has its number now, here our own."""
    write(tmp_path, record())
    with pytest.raises(NotRunning, match="without a word"):
        locate(tmp_path)
    near.offer(tmp_path)
    near.withdraw(tmp_path)
    with pytest.raises(NotRunning, match="without a word"):
        locate(tmp_path)


@pytest.mark.requirement("identity-keys-private")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o602])
def test_a_credential_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int):
    write(tmp_path, record(), mode)
    with pytest.raises(EnvironmentFault) as caught:
        locate(tmp_path)
    assert "chmod 600" in caught.value.remedy


def test_a_link_in_place_of_the_file_is_refused(tmp_path: Path):
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "server.json").symlink_to(write(real, record()))
    with pytest.raises(EnvironmentFault):
        locate(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        record(pid="x"),
        record(pid=0),
        record(pid=-1),
        record(url="file:///etc/passwd"),
        {"url": "http://127.0.0.1"},
    ],
)
def test_a_damaged_file_is_said_to_be_damaged(tmp_path: Path, content: object):
    write(tmp_path, content)
    with pytest.raises(EnvironmentFault) as caught:
        locate(tmp_path)
    assert not isinstance(caught.value, NotRunning)


@pytest.mark.usefixtures("running")
def test_the_token_is_not_in_the_repr(tmp_path: Path):
    write(tmp_path, record())
    assert "t0ken" not in repr(locate(tmp_path))
