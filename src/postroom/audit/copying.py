"""Copies the audit log to the stream AUDIT; it waits while the bus is away.

Each message has lines of one worker, as they are in the files. Each line is copied at least once: the cursor is saved
after the bus has confirmed, so a kill in between repeats lines, under the same `Nats-Msg-Id` if the batch is the same.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

from postroom.audit import AuditLog
from postroom.audit.reading import Cursor, Position, org_of, read_lines
from postroom.bus.port import MessageBusProvider
from postroom.observe.supervision import well
from postroom.protocol import subjects
from postroom.protocol.ids import is_uid

INTERVAL = 1.0
"""Seconds between two reads: lines gather into batches. Each batch costs a stored record and a cursor on the disk; the
log itself is on the disk no sooner.
"""

CATCH_UP_INTERVAL = 0.05
"""Seconds between two chunks while the copy is behind."""

# Only the field itself matches: a quote within a JSON text is written with a backslash.
_WORKER = re.compile(rb'"worker":\s*"([0-9a-z]*)"')


class AuditCopy:
    """Copies the lines of one organisation, and those that the log writes about itself.

    Args:
        space: raises `StateUnwritable` while the disk of the bus is full: writing then would break its stream.
    """

    def __init__(
        self,
        log: AuditLog,
        bus: MessageBusProvider,
        org: str,
        cursor: Cursor,
        space: Callable[[], None] = lambda: None,
    ) -> None:
        self._log = log
        self._bus = bus
        self._org = org
        self._cursor = cursor
        self._space = space
        known = cursor.load()
        self._copied = self._reached = Position(known.get("file", 0), known.get("offset", 0))
        # What is in hand: after a fault the same batches go out again, under the same ids.
        self._batches: dict[str, list[bytes]] = {}

    async def run(self) -> None:
        """Copy until cancelled."""
        while True:
            growth, end = self._log.growth(), self._log.end
            if self._reached == self._copied:
                await self._read(end)
            if self._reached != self._copied:
                await self._copy()
                growth = None
            well()
            if growth is not None:
                await asyncio.wait({growth})
            reached = self._reached
            behind = end.file > reached.file or end.offset > reached.offset
            await asyncio.sleep(CATCH_UP_INTERVAL if behind else INTERVAL)

    async def _read(self, end: Position) -> None:
        lines, reached = await asyncio.to_thread(read_lines, self._log.files, self._copied, end)
        for line in lines:
            if org_of(line) in ("", self._org):
                self._batches.setdefault(_worker_of(line), []).append(line)
        self._reached = reached

    async def _copy(self) -> None:
        reached = self._reached
        for worker in list(self._batches):
            await self._publish(worker, self._batches[worker], reached)
            del self._batches[worker]
        self._cursor.save({"file": reached.file, "offset": reached.offset})
        self._copied = reached

    async def _publish(self, worker: str, batch: Sequence[bytes], reached: Position) -> None:
        self._space()
        subject = subjects.audit(worker)
        await self._bus.publish(
            subject,
            b"".join(line + b"\n" for line in batch),
            id=f"{subject}.{reached.file}.{reached.offset}",
        )


def _worker_of(line: bytes) -> str:
    found = _WORKER.search(line)
    worker = found[1].decode() if found else ""
    return worker if is_uid(worker) else ""
