"""Shortens the log.

A record is deleted when its package says that it is over, judged by a verified copy of the database: what the copy
does not hold is not over. Until then the log grows. A full stream refuses new records and never drops old ones.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from postroom.bus.port import BusAdmin, Message
from postroom.errors import InvalidInput, PostroomError
from postroom.observe import get_logger
from postroom.store import snapshot
from postroom.store.database import Database, Store

log = get_logger(__name__)

INTERVAL = 3600.0
"""Seconds between two runs."""

KEEP = 86400.0
"""Seconds that final records are kept; more than the server's window of de-duplication."""

SCAN = 5000
"""Records of one stream that one step examines."""

Over = Callable[[Store, Message, float], bool]
"""Whether a record is over, from the copy, the record, and the instant before which it must have been final."""


def covered(copy: Store, stream: str, record: Message) -> bool:
    """Whether the copy holds the effect of the record."""
    return record.sequence <= copy.cursor(stream)


class Retention:
    """Shortens the log.

    Args:
        database: the projection, in a file.
        over: the streams to shorten, each with its rule.
        keep: seconds that final records are kept.
    """

    def __init__(
        self,
        admin: BusAdmin,
        database: Database,
        folder: Path,
        over: Mapping[str, Over],
        clock: Callable[[], float] = time.time,
        keep: float = KEEP,
    ) -> None:
        self._admin = admin
        self._database = database
        self._folder = folder
        self._over = over
        self._clock = clock
        self._keep = keep

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
        """Take a copy, and delete the records that it holds and nobody needs; returns how many.

        Raises:
            InvalidInput: the database is in memory.
            StateUnwritable: the disk has no room for the copy; nothing was deleted.
            EnvironmentFault: the copy is damaged; nothing was deleted.
        """
        if self._database.path is None:
            raise InvalidInput(
                "a database in memory cannot be copied, so its log cannot be shortened"
            )
        copy = await asyncio.to_thread(snapshot.take, self._database.path, self._folder)
        before = self._clock() - self._keep
        deleted = sum([await self._shorten(stream, copy, before) for stream in self._over])
        await self._database.write(lambda store: store.records.forget_early_receipts(before))
        return deleted

    async def _shorten(self, stream: str, copy: Path, before: float) -> int:
        deleted = after = 0
        while True:
            batch = await self._scan(stream, after)
            over = await asyncio.to_thread(_those_over, copy, self._over[stream], batch, before)
            for sequence in over:
                await self._admin.delete(stream, sequence)
            deleted += len(over)
            # Up to the first record that is too new: a flood must leave as fast as it came.
            if len(batch) < SCAN or batch[-1].timestamp >= before:
                return deleted
            after = batch[-1].sequence

    async def _scan(self, stream: str, after: int) -> list[Message]:
        batch: list[Message] = []
        async for record in self._admin.replay(stream, after=after):
            batch.append(record)
            if len(batch) == SCAN:
                break
        return batch


def _those_over(copy: Path, over: Over, batch: list[Message], before: float) -> list[int]:
    with snapshot.opened(copy) as store:
        return [
            record.sequence
            for record in batch
            if record.timestamp < before and over(store, record, before)
        ]
