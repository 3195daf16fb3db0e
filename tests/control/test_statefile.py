"""The state folder: private, opened by one post room at a time, and found by other terminals."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from postroom.control.statefile import (
    Announcement,
    StateLock,
    announce,
    prepare,
    withdraw,
)
from postroom.errors import AlreadyRunning, StateUnwritable
from postroom.identity.privatefile import write_private
from postroom.settings import Settings

ANNOUNCEMENT = Announcement(
    url="http://127.0.0.1:4280",
    pid=4711,
    token="s3cret",
    nats_url="nats://127.0.0.1:4222",
    nats_pid=4712,
    started_at="1970-01-01T00:00:01.000Z",
    version="0.1.0",
    state="/state",
)
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
HOLDER = """
import sys
from pathlib import Path
from postroom.control.statefile import StateLock
from postroom.identity.privatefile import write_private
from postroom.settings import Settings
lock = StateLock.acquire(Settings(state=Path(sys.argv[1])))
print("held", flush=True)
sys.stdin.read()
"""


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(state=tmp_path / "state")
    prepare(made)
    return made


@pytest.fixture
def holder(settings: Settings) -> Generator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, settings.state],
        env=ENV,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


@pytest.mark.requirement("identity-keys-private")
def test_the_state_folder_and_its_folders_are_private_whatever_the_umask(tmp_path: Path):
    settings = Settings(state=tmp_path / "a" / "state")
    before = os.umask(0)
    try:
        prepare(settings)
    finally:
        os.umask(before)

    folders = (settings.state, settings.keys, settings.workers, settings.logs)
    assert {_mode(folder) for folder in folders} == {0o700}


@pytest.mark.requirement("identity-keys-private")
def test_a_state_folder_that_others_could_read_is_made_private(tmp_path: Path):
    (tmp_path / "state").mkdir(mode=0o755)

    prepare(Settings(state=tmp_path / "state"))

    assert _mode(tmp_path / "state") == 0o700


def test_a_state_folder_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(StateUnwritable) as caught:
        prepare(Settings(state=tmp_path / "file"))

    assert "--state" in caught.value.remedy


@pytest.mark.requirement("state-lock-exclusive")
def test_a_second_post_room_on_a_folder_is_refused(
    settings: Settings, holder: subprocess.Popen[str]
):
    with pytest.raises(AlreadyRunning, match=str(settings.state)):
        StateLock.acquire(settings)


@pytest.mark.requirement("state-lock-exclusive")
def test_the_refusal_names_pid_and_address_of_the_running_one(
    settings: Settings, holder: subprocess.Popen[str]
):
    announce(settings, ANNOUNCEMENT)

    with pytest.raises(AlreadyRunning, match=r"pid 4711, http://127\.0\.0\.1:4280") as caught:
        StateLock.acquire(settings)

    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("said", ["", "{", "[]", "{}", '{"pid": "x", "url": 1}', "\udcff"])
def test_the_refusal_does_without_an_address_that_cannot_be_read(
    settings: Settings, holder: subprocess.Popen[str], said: str
):
    settings.server_file.write_bytes(said.encode("utf-8", "surrogateescape"))

    with pytest.raises(AlreadyRunning):
        StateLock.acquire(settings)


@pytest.mark.requirement("state-lock-exclusive")
def test_the_lock_of_a_killed_post_room_is_free(settings: Settings, holder: subprocess.Popen[str]):
    holder.send_signal(signal.SIGKILL)
    holder.wait(10)

    StateLock.acquire(settings).release()


@pytest.mark.requirement("state-lock-exclusive")
def test_a_released_lock_can_be_taken_again(settings: Settings):
    StateLock.acquire(settings).release()

    StateLock.acquire(settings).release()


@pytest.mark.requirement("state-lock-exclusive")
def test_a_child_process_does_not_keep_the_lock(settings: Settings):
    lock = StateLock.acquire(settings)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        try:
            lock.release()
            StateLock.acquire(settings).release()
        finally:
            child.kill()


def test_a_lock_in_a_folder_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(StateUnwritable):
        StateLock.acquire(Settings(state=tmp_path / "gone"))


@pytest.mark.requirement("identity-keys-private")
def test_only_the_owner_may_read_the_address_and_the_lock(settings: Settings):
    before = os.umask(0)
    try:
        announce(settings, ANNOUNCEMENT)
        StateLock.acquire(settings).release()
    finally:
        os.umask(before)

    assert (_mode(settings.server_file), _mode(settings.lock_file)) == (0o600, 0o600)


@pytest.mark.requirement("identity-keys-private")
def test_an_address_that_others_could_read_is_replaced_by_a_private_one(settings: Settings):
    settings.server_file.touch(mode=0o644)
    settings.server_file.chmod(0o644)

    announce(settings, ANNOUNCEMENT)

    assert _mode(settings.server_file) == 0o600


@pytest.mark.requirement("identity-keys-private")
def test_the_operators_token_is_not_in_what_is_logged_of_an_announcement():
    assert "s3cret" not in repr(ANNOUNCEMENT)


def test_what_was_announced_is_read_by_others_until_it_is_withdrawn(settings: Settings):
    announce(settings, ANNOUNCEMENT)
    said = json.loads(settings.server_file.read_text())
    withdraw(settings)
    withdraw(settings)

    assert said["url"] == ANNOUNCEMENT.url
    assert said["token"] == "s3cret"
    assert not settings.server_file.exists()


@pytest.mark.requirement("all-kills-counted")
def test_a_write_that_fails_leaves_the_old_file(settings: Settings):
    announce(settings, ANNOUNCEMENT)
    program = """
import resource, sys
from pathlib import Path
from postroom.identity.privatefile import write_private
from postroom.errors import StateUnwritable
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
try:
    write_private(Path(sys.argv[1]), b"x" * 100)
except StateUnwritable:
    print("refused")
"""
    said = subprocess.run(
        [sys.executable, "-c", program, settings.server_file],
        env=ENV,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert said.stdout == "refused\n"
    assert json.loads(settings.server_file.read_text())["pid"] == 4711


@pytest.mark.requirement("all-kills-counted")
def test_a_write_leaves_nothing_but_the_file(settings: Settings):
    before = set(settings.state.iterdir())

    write_private(settings.server_file, b"{}")

    assert set(settings.state.iterdir()) - before == {settings.server_file}


def test_a_write_into_a_folder_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(StateUnwritable):
        write_private(tmp_path / "gone" / "server.json", b"{}")
