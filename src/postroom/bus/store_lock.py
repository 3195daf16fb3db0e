"""The lock beside a JetStream store: two servers on one store both run without a word, and ruin it.

The lock belongs to an open file that the server inherits, so it lives exactly as long as the server does, even
when whoever started it is killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from pathlib import Path

from postroom.errors import StoreLocked

_POLL = 0.02


def acquire(path: Path) -> int:
    """A locked descriptor of `path`, to be passed to the server and then closed here.

    Raises:
        StoreLocked: a server has it; the message names its pid.
        OSError: the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise StoreLocked(
            f"the store beside {path} is open in the nats-server with pid {holder}",
            remedy="stop that post room, or use another state folder",
        ) from error
    except BaseException:
        os.close(descriptor)
        raise
    name_holder(descriptor, os.getpid())  # until the server's own pid is known
    return descriptor


async def acquire_within(path: Path, patience: float) -> int:
    """As `acquire`, but for `patience` seconds a server that has the lock is waited for.

    The kernel tells nobody that a lock is free, and the holder named in the file may not be the last one.
    """
    deadline = time.monotonic() + patience
    while True:
        try:
            return acquire(path)
        except StoreLocked:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_POLL)


def name_holder(descriptor: int, pid: int) -> None:
    """Write down who holds the lock."""
    text = f"{pid}\n".encode()
    os.pwrite(descriptor, text, 0)
    os.ftruncate(descriptor, len(text))
