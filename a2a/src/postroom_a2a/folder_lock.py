"""A lock beside a store that only one process may open, for stores that do not see to that themselves.

It belongs to an open file, so the kernel frees it when the last process with that file ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class Held(Exception):
    """Another process has the lock.

    Attributes:
        holder: its pid as it was written, "unknown" where it was not.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


def acquire(path: Path) -> int:
    """A locked descriptor of `path`, which names this process as the holder; close it to free the lock.

    Raises:
        Held: another process, or another descriptor of this one, has it.
        OSError: the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise Held(holder) from None
    except BaseException:
        os.close(descriptor)
        raise
    name_holder(descriptor, os.getpid())
    return descriptor


def name_holder(descriptor: int, pid: int) -> None:
    """Write the lock's holder into its file."""
    text = f"{pid}\n".encode()
    os.pwrite(descriptor, text, 0)
    os.ftruncate(descriptor, len(text))
