"""The header block of a worker's publish: one form, and few of the server's own headers. Pure.

`Nats-…` headers are orders to the server and to readers of the stream. Most of them delete, delay or trace the records
of others, or make the server reveal something: a refused expectation of a sequence says when somebody last stored on
that subject. A worker may use two: the id of a message, and the expected last sequence of its own task's records.
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
    """The headers that a worker may send; `tasks` begins the subjects of its task records (`worker.<own>.tasks.`)."""

    def __init__(self, tasks: bytes) -> None:
        chain = re.compile(rb"%b[^.*>\s]+\.>" % re.escape(tasks)).fullmatch
        self._anywhere = {b"Nats-Msg-Id": _ID}
        self._on_tasks = self._anywhere | {
            b"Nats-Expected-Last-Subject-Sequence": _SEQUENCE,
            b"Nats-Expected-Last-Subject-Sequence-Subject": chain,
        }

    def refusal(self, data: bytes, start: int, size: int, *, task: bool) -> str:
        """Why the block of `size` bytes at `start` of `data` is refused; "" if it may pass.

        Args:
            data: holds the whole block, unless that is over `HELD` bytes.
            task: the block belongs to a record of the worker's own task.
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
