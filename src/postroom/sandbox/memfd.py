"""Files in memory, for what a sandbox must get without a disk or a command line."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def memory_file(content: bytes) -> Generator[int]:
    """A file in memory that holds `content`, open at its start; no path leads to it."""
    fd = os.memfd_create("postroom")
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(content)
        os.fchmod(fd, 0o600)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)
