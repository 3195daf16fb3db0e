"""The output of a sandboxed program, kept in a host file of bounded size.

The program gets a pipe, not the file: it could open a file descriptor again through procfs, without its append mode,
and make the file grow without end.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

DEFAULT_LIMIT = 8 * 1024 * 1024
"""Bytes of one log file; the one before it is kept as `<name>.1`."""
CHUNK = 64 * 1024


class OutputLog:
    """Appends to a file of mode 0600, and starts a new file when that is full."""

    def __init__(self, path: Path, limit: int = DEFAULT_LIMIT) -> None:
        self._path = path
        self._limit = limit
        self._file = self._open()

    def write(self, chunk: bytes) -> None:
        """Append `chunk`; raises OSError if the disk does."""
        if self._file.tell() + len(chunk) > self._limit and self._file.tell() > 0:
            self._file.close()
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            self._file = self._open()
        self._file.write(chunk)
        self._file.flush()

    def close(self) -> None:
        """Close the file; what a full disk did not take is lost."""
        with suppress(OSError):  # closing flushes again what `write` could not write
            self._file.close()

    def _open(self) -> BinaryIO:
        # O_NOFOLLOW: a link in place of the log would choose which file of the host grows.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        return os.fdopen(os.open(self._path, flags, 0o600), "ab")


async def drain(reader: asyncio.StreamReader | None, log: OutputLog) -> str:
    """Copy `reader` (a process's piped stdout) to `log` until its end; return why writing failed, or "".

    After a failed write it reads on, so that a full disk does not stop the program.
    """
    failure = ""
    try:
        while reader is not None and (chunk := await reader.read(CHUNK)):
            if failure:
                continue
            try:
                log.write(chunk)
            except OSError as error:
                failure = str(error)
    finally:
        log.close()
    return failure


def tail(path: Path, limit: int = 4096) -> str:
    """The last `limit` bytes of the log at `path`, as text."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit))
            return file.read(limit).decode(errors="replace")
    except FileNotFoundError:
        return ""
