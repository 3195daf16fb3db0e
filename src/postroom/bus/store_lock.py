"""The lock beside a JetStream store: two servers on one store would both run without an error, and ruin it.

The lock belongs to an open file that the server inherits, so it lives exactly as long as the server does, even when a
signal kills the process that started it.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from postroom.errors import StoreLocked
from postroom_a2a import folder_lock
from postroom_a2a.folder_lock import name_holder

__all__ = ["acquire", "acquire_within", "name_holder"]

_POLL = 0.02


def acquire(path: Path) -> int:
    """A locked descriptor of `path`: pass it to the server, then close it here.

    Raises:
        StoreLocked: a server holds it; the message names its pid.
        OSError: the file cannot be opened.
    """
    try:
        return folder_lock.acquire(path)  # it names us until the server's own pid is known
    except folder_lock.Held as error:
        raise StoreLocked(
            f"the store beside {path} is open in the nats-server with pid {error.holder}",
            remedy="stop that post room, or use another state folder",
        ) from error


async def acquire_within(path: Path, timeout: float) -> int:
    """As `acquire`, but wait up to `timeout` seconds for a server that holds the lock.

    The kernel reports no unlock, and the holder named in the file may not be the last one.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return acquire(path)
        except StoreLocked:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_POLL)
