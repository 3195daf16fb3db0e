"""Backs up a state folder, in an order in which each part covers those before it.

1. A snapshot of each projection. 2. The log, the sidecars' journals and the cursors of the audit log, at one instant:
the log goes on from the projections, and a journal knows of nothing that the log has not. 3. Agents, workers and keys,
which may be newer. 4. Content that is named by its hash, workspaces and the audit log's files.

Streams and the places of consumers in them must be of one moment: a message that its worker has confirmed, but whose
receipt is missing, would stay open for ever. JetStream can copy one stream after the other, not all at once. So our
own nats-server is stopped for a moment (SIGSTOP), while its large files, which only ever grow, get a second name and
the small ones are copied (`frozen`). What that gives is what a `kill -9` of the server at that instant would leave, and
nats-server and post room both go on from that.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from postroom import __version__
from postroom.backup.archive import ABOUT, Writer, check_passphrase, seal, writing
from postroom.settings import DEFAULT_ORG, Settings
from postroom.store import copying
from postroom.store.database import Database
from postroom.store.schema import IDENTITY, REVISION

FORMAT = 1
KEYS = "keys.sealed"
SNAPSHOTS = "snapshots"
"""Folder of the archive: ORG.projection and ORG.identity."""

JOURNAL = "sidecar"
"""Folder of a worker with its sidecar's journal."""

RUNTIME = "log.run"
"""Folder of a worker that is made anew at each start and holds its credential."""

CURSORS = ("bus.json", "audit-copy.json", "audit-streams.json")
"""Small files of an organisation that say how far something has come."""

GUARD = 10
"""Seconds after which the server goes on in any case: the post room may be killed while it is stopped."""

GROWING = ".blk"
"""Files of messages. The server appends to them, or replaces one by another; it changes none in place."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A finished backup; `skipped` are files of workers that could not be read."""

    file: Path
    size: int
    orgs: tuple[str, ...]
    skipped: tuple[str, ...]


def back_up(
    settings: Settings, databases: Mapping[str, Database], file: Path, passphrase: str, pid: int
) -> Taken:
    """Write a backup of the post room to `file`. Blocks: call in a thread.

    Args:
        databases: of every organisation.
        pid: of the nats-server that has the log open, 0 if none runs.

    Raises:
        InvalidInput: the passphrase is too short.
        StateUnwritable: `file` cannot be written, or the disk is full; there is no new file.
        EnvironmentFault: a database is damaged.
    """
    check_passphrase(passphrase)
    homes = {org: settings.for_org(org) for org in databases}
    with (
        tempfile.TemporaryDirectory(dir=settings.state, prefix=".backup-") as scratch,
        writing(file) as archive,
    ):
        aside = Path(scratch)
        about = json.dumps(
            {
                "postroom": "backup",
                "format": FORMAT,
                "version": __version__,
                "revision": REVISION,
                "created": time.time(),
                "orgs": sorted(databases),
            }
        ).encode()
        archive.document(ABOUT, about)
        for org, database in databases.items():
            copying.take(database, aside / f"{org}.projection", org)
        with frozen(
            settings.nats / "store",
            settings.nats / "backup",
            pid,
            lambda: _copy_small(homes, aside),
        ) as log:
            for org, database in databases.items():
                copying.take(database, aside / f"{org}.identity", org, tables=IDENTITY)
            archive.document(KEYS, seal(_secrets(settings), passphrase, about))
            for org in databases:
                for part in ("projection", "identity"):
                    archive.file(f"{SNAPSHOTS}/{org}.{part}", aside / f"{org}.{part}")
            for part in log:
                archive.file(f"nats/store/{part.name}", part.path, part.size)
        for org, home in homes.items():
            _add_home(archive, _prefix(org), home, aside / "homes" / org)
        for path in sorted(settings.logs.glob("audit*.jsonl")):
            archive.file(f"logs/{path.name}", path)
        skipped = tuple(archive.skipped)
    return Taken(file, file.stat().st_size, tuple(sorted(databases)), skipped)


def _prefix(org: str) -> str:
    return "" if org == DEFAULT_ORG else f"orgs/{org}/"


def _copy_small(homes: Mapping[str, Settings], aside: Path) -> None:
    """What has to be of the log's moment: journals and cursors. nats-server stands still meanwhile."""
    for org, home in homes.items():
        kept = aside / "homes" / org
        kept.mkdir(parents=True)
        for name in CURSORS:
            with suppress(FileNotFoundError):
                shutil.copyfile(home.home / name, kept / name)
        for journal in home.workers.glob(f"*/{JOURNAL}"):
            into = kept / "workers" / journal.parent.name / JOURNAL
            into.mkdir(parents=True)
            for path in journal.iterdir():
                with suppress(OSError):
                    if path.is_file() and not path.is_symlink():
                        shutil.copyfile(path, into / path.name)


def _add_home(archive: Writer, prefix: str, home: Settings, kept: Path) -> None:
    for name in CURSORS:
        if (kept / name).exists():
            archive.file(f"{prefix}{name}", kept / name)
    if home.blobs.exists():
        archive.tree(f"{prefix}blobs", home.blobs, lambda path: path == home.blobs / "new")
    if not home.workers.exists():
        return
    archive.folder(f"{prefix}workers")
    for worker in sorted(home.workers.iterdir()):
        name = f"{prefix}workers/{worker.name}"
        others = {worker / JOURNAL, worker / RUNTIME}
        archive.tree(name, worker, others.__contains__)
        archive.tree(f"{name}/{JOURNAL}", kept / "workers" / worker.name / JOURNAL)


def _secrets(settings: Settings) -> bytes:
    """Keys, certificates and settings, which may hold a secret too: path to content."""
    found = {str(path.relative_to(settings.state)): path for path in _secret_files(settings)}
    content = {name: base64.b64encode(path.read_bytes()).decode() for name, path in found.items()}
    return json.dumps(content).encode()


def _secret_files(settings: Settings) -> Iterator[Path]:
    for folder in (settings.keys, settings.tls_folder):
        yield from (path for path in sorted(folder.rglob("*")) if path.is_file())
    if settings.file.is_file():
        yield settings.file


@dataclass(frozen=True, slots=True)
class FrozenFile:
    """A file of the copy: its name below the store, where its content is, and how many bytes belong to the copy."""

    name: str
    path: Path
    size: int


@contextmanager
def frozen(
    store: Path, aside: Path, pid: int, meanwhile: Callable[[], None] = lambda: None
) -> Generator[list[FrozenFile], None, None]:
    """The files of `store` as they are at one instant; they stay until the block ends.

    Args:
        aside: a folder on the same file system, for the copy.
        pid: of the nats-server that has the store open; 0 if none has.
        meanwhile: called at that instant; it must be quick.
    """
    shutil.rmtree(aside, ignore_errors=True)  # left by one that was killed
    aside.mkdir(mode=0o700, parents=True)
    try:
        with _stopped(pid):
            files = list(_copied(store, aside))
            meanwhile()
        yield files
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def _stopped(pid: int) -> Generator[None, None, None]:
    if not pid:
        yield
        return
    guard = subprocess.Popen(
        ["/bin/sh", "-c", f"sleep {GUARD}; kill -CONT {pid}"], start_new_session=True
    )
    try:
        os.kill(pid, signal.SIGSTOP)
        _await_stop(pid)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
        os.killpg(guard.pid, signal.SIGKILL)
        guard.wait()


def _await_stop(pid: int) -> None:
    """Return when all its threads stand still; without /proc, after the moment that takes."""
    deadline = time.monotonic() + 1.0
    tasks = Path(f"/proc/{pid}/task")
    while time.monotonic() < deadline:
        try:
            states = [
                (task / "stat").read_text().rpartition(")")[2].split()[0]
                for task in tasks.iterdir()
            ]
        except (FileNotFoundError, ProcessLookupError):
            break
        if all(state in {"T", "t", "X", "Z"} for state in states):
            return
        time.sleep(0.001)
    time.sleep(0.05)


def _copied(store: Path, aside: Path) -> Iterator[FrozenFile]:
    for folder, _, names in os.walk(store):
        for name in names:
            path = Path(folder) / name
            inner = path.relative_to(store)
            copy = aside / inner
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                size = path.stat().st_size
                if name.endswith(GROWING):
                    _second_name(path, copy)
                else:
                    shutil.copyfile(path, copy)
            except FileNotFoundError:
                continue  # without a server nobody removes one; with one, it stands still
            yield FrozenFile(str(inner), copy, size)


def _second_name(path: Path, copy: Path) -> None:
    try:
        os.link(path, copy)
    except OSError:  # a file system without second names
        shutil.copyfile(path, copy)
