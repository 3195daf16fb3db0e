"""The state folder of a running post room: its lock, and the file by which other terminals find it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from postroom.errors import AlreadyRunning, StateUnwritable
from postroom.identity.privatefile import write_private
from postroom.protocol import shapes
from postroom.settings import Settings

ASKED = 20
"""Times that the lock is tried, a hundredth of a second apart."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """The content of `server.json`.

    Attributes:
        token: API key of the operator; the file is 0600 for its sake, so it stays out of `repr`.
        nats_url: of the bus; several servers of somebody else with commas between them.
        nats_pid: of our nats-server, 0 for somebody else's.
        me: `{"uid", "nick"}` of the operator.
        ca: path of the authority to trust for an `https` URL, "" for the system's.
        listen: URLs for others, of the API and of the bus.
        tls: the certificate in use, None without TLS.
        notes: for the operator about this start, a sentence each.
        logins: what others type to use this post room from their machines.
        database: address of the database without its password, "" for files in the state folder.
    """

    url: str
    pid: int
    token: str = field(repr=False)
    nats_url: str
    nats_pid: int
    started_at: shapes.Time
    version: str
    state: str
    me: dict[str, str] = field(default_factory=dict)
    ca: str = ""
    listen: tuple[str, ...] = ()
    tls: shapes.Certificate | None = None
    notes: tuple[str, ...] = ()
    logins: tuple[str, ...] = ()
    database: str = ""

    def as_json(self) -> shapes.Server:
        """Shape of the API: all but the key and whom it makes its bearer."""
        return {
            **self.for_all(),
            "pid": self.pid,
            "nats_url": self.nats_url,
            "nats_pid": self.nats_pid,
            "state": self.state,
            "ca": self.ca,
            "tls": self.tls,
            "notes": list(self.notes),
            "logins": list(self.logins),
            "database": self.database,
        }

    def for_all(self) -> shapes.Server:
        """What everybody may know."""
        return {"url": self.url, "listen": list(self.listen), "started_at": self.started_at}


def prepare(settings: Settings) -> None:
    """Make the state folder and its sub-folders, private to this user."""
    for folder in (settings.state, settings.keys, settings.workers, settings.logs):
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.chmod(0o700)
        except OSError as error:
            raise StateUnwritable(
                f"cannot write the state folder {settings.state}: {error.strerror}",
                remedy="choose another with --state DIR",
            ) from error


class StateLock:
    """The lock of a state folder; the kernel frees it when this process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, settings: Settings) -> StateLock:
        """Take the lock; AlreadyRunning, with the other post room's address, if that has it."""
        try:
            descriptor = os.open(settings.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateUnwritable(
                f"cannot write {settings.lock_file}: {error.strerror}",
                remedy="choose another with --state DIR",
            ) from error
        try:
            _lock(descriptor)
        except BlockingIOError as error:
            os.close(descriptor)
            raise AlreadyRunning(
                f"a post room runs already on {settings.state}{_where(settings)}",
                remedy="postroom status, postroom down, or --state DIR for a second one",
            ) from error
        return cls(descriptor)

    def release(self) -> None:
        """Free the lock."""
        os.close(self._descriptor)

    def __enter__(self) -> None:
        """Hold it until the end of the block."""

    def __exit__(self, *_: object) -> None:
        self.release()


def _lock(descriptor: int) -> None:
    """Take the lock; who only asks whether somebody has it holds it for a moment. Raises BlockingIOError."""
    for _ in range(ASKED):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.01)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _where(settings: Settings) -> str:
    try:
        said = json.loads(settings.server_file.read_text())
        return f" (pid {int(said['pid'])}, {said['url']})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def announce(settings: Settings, announcement: Announcement) -> None:
    """Write `server.json`, whole or not at all, readable by this user only."""
    write_private(settings.server_file, json.dumps(asdict(announcement), indent=1).encode())


def withdraw(settings: Settings) -> None:
    """Remove `server.json` and the socket."""
    settings.server_file.unlink(missing_ok=True)
    settings.socket_file.unlink(missing_ok=True)
