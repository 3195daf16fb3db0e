"""The audit log: one JSON line for each connection through a door, written when it ends or is refused."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from postroom.errors import StateUnwritable
from postroom.protocol.times import format_time


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One connection.

    Attributes:
        worker: uid whose door it came through.
        protocol: `nats` or `http`, "" if the preface was refused.
        verdict: `relayed`, or `refused: <why>`.
        bytes_out: from the sandbox.
        bytes_in: to the sandbox.
        seconds: it lasted.
    """

    worker: str
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
        self._file = self._open()

    def _open(self) -> BinaryIO:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise StateUnwritable(
                f"cannot write the audit log {self._path}: {error.strerror}"
            ) from error
        return os.fdopen(descriptor, "ab", buffering=0)

    def write(self, line: AuditLine) -> None:
        """Append one line.

        Raises:
            StateUnwritable: the disk is full or the folder gone: what cannot be audited is not relayed.
        """
        record = {"at": format_time(self._clock()), **asdict(line)}
        try:
            self._file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
        except OSError as error:
            raise StateUnwritable(
                f"cannot write the audit log {self._path}: {error.strerror}"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
