"""The header block of what a worker publishes: one form, and of the server's own headers those that it needs. Pure.

`Nats-…` headers are orders to the server and to who reads what it stored. Most of them delete, delay or trace what is
others', or make the server tell of it: one that expects a sequence on a subject is answered with when something was
last stored there. So of these a worker may use the id of a message, and the expectation of its own task's last record.
"""

from __future__ import annotations

import re

from postroom.gateway.nats.stream import HELD

LARGE = f"headers of over {HELD} bytes"
MALFORMED = "malformed headers"

_BLOCK = re.compile(
    rb"NATS/1\.0\r\n(?:[!#-'*+\-.0-9A-Z^-z|~]+:[^\r\n\0]*\r\n)*\r\n",
).fullmatch
_SERVERS = re.compile(rb"\r\n((?i:nats-)[^:]*): ?([^\r]*)").findall

_ID = re.compile(rb"[!-~]{1,128}").fullmatch
_SEQUENCE = re.compile(rb"\d{1,20}").fullmatch


class Headers:
    """What the worker whose records of tasks begin with `tasks` (`worker.<own>.tasks.`) may say in headers."""

    def __init__(self, tasks: bytes) -> None:
        chain = re.compile(rb"%b[^.*>\s]+\.>" % re.escape(tasks)).fullmatch
        self._anywhere = {b"Nats-Msg-Id": _ID}
        self._on_tasks = self._anywhere | {
            b"Nats-Expected-Last-Subject-Sequence": _SEQUENCE,
            b"Nats-Expected-Last-Subject-Sequence-Subject": chain,
        }

    def refusal(self, data: bytes, start: int, size: int, *, task: bool) -> str:
        """Why the block of `size` bytes at `start` of `data` is refused, "" if it is not.

        Args:
            data: has the whole block, unless it is over `HELD` bytes.
            size: its bytes.
            task: it is that of a record of a task of its own.
        """
        if size > HELD:
            return LARGE
        stop = start + size
        if not _BLOCK(data, start, stop):
            return MALFORMED
        found = _SERVERS(data, start, stop)
        if not found:
            return ""
        allowed = self._on_tasks if task else self._anywhere
        seen = set()
        for name, value in found:
            if name in seen or name not in allowed or not allowed[name](value):
                return f"header {name[:64].decode('ascii')}"
            seen.add(name)
        return ""
