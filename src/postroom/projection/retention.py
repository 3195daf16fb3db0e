"""Shortens the log.

A record is deleted when its package says that it is over, and a verified snapshot on disk holds its effect: its
sequence is at or before the snapshot's cursor of its stream. Until then the log grows. A full stream refuses new
records and never drops old ones.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from postroom.bus.port import BusAdmin, Message
from postroom.observe import get_logger
from postroom.observe.supervision import well
from postroom.projection.pruning import Pruned, Pruner
from postroom.store import copying, snapshot
from postroom.store.database import Database, Store

log = get_logger(__name__)

INTERVAL = 3600.0
"""Seconds between two runs."""

SHARE = 0.01
"""The most of the time that runs may take: a large database is copied less often."""

KEEP = 86400.0
"""Seconds that final records are kept; more than the server's window of de-duplication."""

SCAN = 5000
"""Records of one stream that one step examines."""

JUDGED = 250
"""Records that are judged in one read of the database."""


@dataclass(frozen=True, slots=True)
class Over:
    """When records of a stream are over.

    Attributes:
        judge: tells it from the rows, the record, and the instant before which it must have been final.
        folded: whether the records become rows, so that a snapshot must hold them first.
    """

    judge: Callable[[Store, Message, float], bool]
    folded: bool = True


class Retention:
    """Shortens the log.

    Args:
        database: the projection, in a file.
        folder: of the snapshot.
        org: whose it is.
        over: the streams to shorten, each with its rule.
        pruner: gives up rows that the user does not keep; None for nothing.
        keep: seconds that final records are kept.
    """

    def __init__(
        self,
        admin: BusAdmin,
        database: Database,
        folder: Path,
        over: Mapping[str, Over],
        *,
        org: str,
        pruner: Pruner | None = None,
        clock: Callable[[], float] = time.time,
        keep: float = KEEP,
    ) -> None:
        self._admin = admin
        self._database = database
        self._folder = folder
        self._over = over
        self._org = org
        self._pruner = pruner
        self._wake = asyncio.Event()
        self._failed = False
        self._clock = clock
        self._keep = keep

    async def run(self) -> None:
        """Shorten the log every `INTERVAL` seconds, or more seldom, until cancelled."""
        took = 0.0
        while True:
            pause = max(INTERVAL, took / SHARE)
            if not self._failed:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause * random.uniform(0.9, 1.1)):  # noqa: S311 (jitter)
                        await self._wake.wait()
            self._wake.clear()
            begun = time.monotonic()
            self._failed = True  # unless it comes to its end
            deleted = await self.shorten()
            self._failed = False
            log.info("%d records were deleted from the log", deleted)
            well()
            took = time.monotonic() - begun

    async def due(self) -> list[Pruned]:
        """What the user does not keep any more."""
        return await self._pruner.due() if self._pruner else []

    async def prune(self) -> list[Pruned]:
        """Give that up now, and have the log shortened soon; returns what it was."""
        found = await self._pruner.prune() if self._pruner else []
        self._wake.set()
        return found

    async def shorten(self) -> int:
        """Give up what the user does not keep, take a snapshot, and delete from the log what it holds and nobody
        needs; returns the number of deleted records.

        Raises:
            InvalidInput: the database is in memory.
            StateUnwritable: the disk has no room for the snapshot; nothing was deleted.
            EnvironmentFault: the database or the snapshot is damaged; nothing was deleted.
        """
        if self._pruner is not None:
            await self._pruner.prune()
        before = self._clock() - self._keep
        path = self._folder / snapshot.NAME
        held = await asyncio.to_thread(copying.take, self._database, path, self._org)
        deleted = sum([await self._shorten(stream, held.cursors, before) for stream in self._over])
        await self._database.write(
            lambda store: store.records.forget_early_receipts(before), accounts=False
        )
        return deleted

    async def _shorten(self, stream: str, held: Mapping[str, int], before: float) -> int:
        over, deleted, after = self._over[stream], 0, 0
        while True:
            batch = await self._scan(stream, after)
            old = [record for record in batch if record.timestamp < before]
            if over.folded:
                old = [record for record in old if record.sequence <= held.get(stream, 0)]
            for at in range(0, len(old), JUDGED):
                part = old[at : at + JUDGED]
                for sequence in await self._database.read(
                    partial(_those_over, over, stream, part, before)
                ):
                    await self._admin.delete(stream, sequence)
                    deleted += 1
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


def _those_over(
    over: Over, stream: str, batch: list[Message], before: float, store: Store
) -> list[int]:
    kept = set(store.records.passed_over(stream))  # a rebuild by better rules folds them
    return [
        record.sequence
        for record in batch
        if record.sequence not in kept and over.judge(store, record, before)
    ]
