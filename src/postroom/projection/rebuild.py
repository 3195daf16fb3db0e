"""Builds the projection again, from a copy of the database and the later records of the log."""

from __future__ import annotations

import asyncio
from pathlib import Path

from postroom.bus.port import BusAdmin, Message
from postroom.errors import EnvironmentFault, InvalidInput
from postroom.projection.rules import Rules, fold
from postroom.store import snapshot
from postroom.store.database import Database

BATCH = 256
"""Records that one transaction folds."""


async def rebuild(database: Database, admin: BusAdmin, rules: Rules, copy: Path | None) -> None:
    """Build the projection again. Identity data stays as it is.

    No `Fold` may run on `database` meanwhile.

    Args:
        rules: of all streams, in the order in which to fold them.
        copy: made by `Retention`; None where the log was never shortened.

    Raises:
        EnvironmentFault: the copy is damaged, or belongs to another log. A damaged copy changes nothing.
    """
    if copy is not None:
        await asyncio.to_thread(snapshot.verify, copy)
    if database.path is None:
        raise InvalidInput("a database in memory is not rebuilt: it ends with its process")
    await asyncio.to_thread(snapshot.restore_projection, database.path, copy)
    for stream in rules:
        await _fold_on(database, admin, rules, stream)


async def _fold_on(database: Database, admin: BusAdmin, rules: Rules, stream: str) -> None:
    position = await database.read(lambda store: store.cursor(stream))
    if await admin.last_sequence(stream) < position:
        raise EnvironmentFault(
            f"the copy is ahead of the log of {stream}: they do not belong together"
        )
    batch: list[Message] = []

    async def commit() -> None:
        await database.write(lambda store: fold(store, rules, stream, batch))
        batch.clear()

    async for record in admin.replay(stream, after=position):
        batch.append(record)
        if len(batch) == BATCH:
            await commit()
    if batch:
        await commit()
