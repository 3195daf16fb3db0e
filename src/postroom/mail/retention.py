"""How long the log keeps what is over, and how the projection is built again.

A record of INBOX or RECEIPTS is deleted when the final state of its message is folded, a verified copy of the
database covers it, and it has been final for a while (its sender may still want to hear the receipt). Until then the
log only grows, and a full stream refuses new records instead of losing old ones.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from pathlib import Path

from postroom.bus.port import BusAdmin, Message
from postroom.errors import EnvironmentFault, InvalidInput, PostroomError, ProtocolViolation
from postroom.mail import projection
from postroom.observe import get_logger
from postroom.protocol import subjects
from postroom.protocol.receipts import Receipt
from postroom.store import messages, records, snapshot
from postroom.store.database import Connection, Database

log = get_logger(__name__)

INTERVAL = 3600.0
"""Seconds between two runs."""

KEEP = 86400.0
"""Seconds that the records of a final message are kept; more than the server's window of de-duplication."""

SCAN = 5000
"""Records of one stream that one run looks at; the next one goes on behind them."""

BATCH = 256
"""Records that `rebuild` folds in one transaction."""


class Retention:
    """Shortens the log.

    Args:
        admin: reads and deletes records.
        database: the projection, in a file.
        folder: for the copy.
        clock: seconds since the epoch.
        keep: seconds that the records of a final message are kept.
    """

    def __init__(
        self,
        admin: BusAdmin,
        database: Database,
        folder: Path,
        clock: Callable[[], float] = time.time,
        keep: float = KEEP,
    ) -> None:
        self._admin = admin
        self._database = database
        self._folder = folder
        self._clock = clock
        self._keep = keep
        self._scanned = {"INBOX": 0, "RECEIPTS": 0}

    async def run(self) -> None:
        """Shorten the log every `INTERVAL` seconds until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL * random.uniform(0.9, 1.1))  # noqa: S311 (jitter)
            try:
                deleted = await self.shorten()
            except PostroomError as error:
                log.warning("the log could not be shortened: %s", error)
            else:
                log.info("%d records were deleted from the log", deleted)

    async def shorten(self) -> int:
        """Take a copy, and delete what it covers and nobody needs any more; returns how many records.

        Raises:
            InvalidInput: the database is in memory.
            StateUnwritable: there is no room for the copy; nothing was deleted.
            EnvironmentFault: the copy is damaged; nothing was deleted.
        """
        if self._database.path is None:
            raise InvalidInput("a database in memory has nothing to fall back to")
        copy = await asyncio.to_thread(snapshot.take, self._database.path, self._folder)
        before = self._clock() - self._keep
        deleted = 0
        for stream in self._scanned:
            batch = await self._scan(stream)
            over = await asyncio.to_thread(_over, copy, stream, batch, before)
            for sequence in over:
                await self._admin.delete(stream, sequence)
            deleted += len(over)
        await self._database.write(lambda c: records.forget_early_receipts(c, before))
        return deleted

    async def _scan(self, stream: str) -> list[Message]:
        batch: list[Message] = []
        async for record in self._admin.replay(stream, after=self._scanned[stream]):
            batch.append(record)
            if len(batch) == SCAN:
                break
        # At the end it begins anew: what was open at the front may be final by then.
        self._scanned[stream] = batch[-1].sequence if len(batch) == SCAN else 0
        return batch


def _over(copy: Path, stream: str, batch: list[Message], before: float) -> list[int]:
    """Sequences of the records that the copy covers and whose messages have been final since `before`."""
    with snapshot.opened(copy) as connection:
        covered = records.cursor(connection, stream)
        return [
            record.sequence
            for record in batch
            if record.sequence <= covered
            and record.timestamp < before
            and _is_over(connection, stream, record, before)
        ]


def _is_over(connection: Connection, stream: str, record: Message, before: float) -> bool:
    if stream == "INBOX":
        row = messages.message_at(connection, record.sequence)
    else:
        try:
            about = Receipt.decode(record.payload).message_id
            sender = subjects.parse(record.subject).recipient
        except (ProtocolViolation, InvalidInput):
            return True
        row = messages.message_of(connection, sender, about)
    # Folded and no row: a copy of an earlier message, or a receipt for none.
    return row is None or (row.final and row.updated_at < before)


async def rebuild(database: Database, admin: BusAdmin, copy: Path | None) -> None:
    """Build the projection again: from a copy and the log behind it. Identity data stays as it is.

    No `Fold` may run on `database` meanwhile.

    Args:
        database: migrated.
        admin: reads the log.
        copy: made by `Retention`; None where the log was never shortened.

    Raises:
        EnvironmentFault: the copy is damaged, or it is not of this log; nothing was changed in the first case.
    """
    if copy is not None:
        await asyncio.to_thread(snapshot.verify, copy)
    await database.outside_transaction(lambda c: snapshot.restore_projection(c, copy))
    for stream in projection.STREAMS:
        await _fold_on(database, admin, stream)


async def _fold_on(database: Database, admin: BusAdmin, stream: str) -> None:
    position = await database.read(lambda c: records.cursor(c, stream))
    if await admin.last_sequence(stream) < position:
        raise EnvironmentFault(
            f"the copy is ahead of the log of {stream}: they do not belong together"
        )
    batch: list[Message] = []

    async def fold() -> None:
        await database.write(lambda c: projection.fold(c, stream, batch))
        batch.clear()

    async for record in admin.replay(stream, after=position):
        batch.append(record)
        if len(batch) == BATCH:
            await fold()
    if batch:
        await fold()
