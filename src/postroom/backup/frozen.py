"""A copy of a log that is in use, as it is at one instant.

Streams and the places of consumers in them must be of one moment: a message that its worker has confirmed, but whose
receipt is missing, would stay open for ever. JetStream can copy one stream after the other, not all at once. So our
own nats-server is stopped for a moment (SIGSTOP), while its large files, which only ever grow, get a second name and
the small ones are copied. What that gives is what a `kill -9` of the server at that instant would leave, and
nats-server and post room both go on from that.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

GUARD = 10
"""Seconds after which the server goes on in any case: the post room may be killed while it is stopped."""

GROWING = ".blk"
"""Files of messages. The server appends to them, or replaces one by another; it changes none in place."""


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
