"""The audit log: a JSON line before a connection is relayed, and one when it has ended or was refused.

The first line is what makes the log complete: the last one of a long connection would be missing for as long as
it lasts, and for ever if this process is killed or the disk is full by then.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from postroom.errors import StateUnwritable
from postroom.protocol.times import format_time


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One connection at its beginning or its end.

    Attributes:
        worker: uid whose door it came through.
        connection: name that its lines share.
        protocol: `nats` or `http`, "" if the preface was refused.
        verdict: `opened` before the first byte passes, `relayed` at the end; or only `refused: <why>`.
        bytes_out: from the sandbox.
        bytes_in: to the sandbox.
        seconds: it lasted.
    """

    worker: str
    connection: str
    protocol: str
    verdict: str
    bytes_out: int = 0
    bytes_in: int = 0
    seconds: float = 0.0


class AuditLog:
    """Appends audit lines to a file that only the owner can read."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._descriptor = self._open()
        # Whatever an earlier process left unfinished gets its line break first.
        self._torn = self._ends_torn()

    def _open(self) -> int:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unwritable(error.strerror) from error

    def _ends_torn(self) -> bool:
        if not self._path.is_file() or not self._path.stat().st_size:
            return False
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"

    def write(self, lines: AuditLine | bytes) -> None:
        """Append one line, or whole lines that are encoded already.

        Raises:
            StateUnwritable: the disk is full or the folder gone: what cannot be audited is not relayed.
        """
        if not isinstance(lines, bytes):
            record = {"at": format_time(self._clock()), **asdict(lines)}
            lines = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        encoded = b"\n" * self._torn + lines
        try:
            written = os.write(self._descriptor, encoded)
        except OSError as error:
            raise self._unwritable(error.strerror) from error
        self._torn = written < len(encoded)
        if self._torn:
            raise self._unwritable("No space left for a whole line")

    def _unwritable(self, why: str | None) -> StateUnwritable:
        return StateUnwritable(f"cannot write the audit log {self._path}: {why}")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
