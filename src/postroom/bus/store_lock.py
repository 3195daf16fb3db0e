"""The lock beside a JetStream store: two servers on one store would both run without an error, and ruin it.

The lock belongs to an open file that the server inherits, so it lives exactly as long as the server does, even when a
signal kills the process that started it.
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
    """A locked descriptor of `path`: pass it to the server, then close it here.

    Raises:
        StoreLocked: a server holds it; the message names its pid.
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
    """As `acquire`, but wait up to `patience` seconds for a server that holds the lock.

    The kernel reports no unlock, and the holder named in the file may not be the last one.
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
    """Write the lock's holder into its file."""
    text = f"{pid}\n".encode()
    os.pwrite(descriptor, text, 0)
    os.ftruncate(descriptor, len(text))
