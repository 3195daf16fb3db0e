"""Builds the projection again, from a snapshot and the later records of the log."""

from __future__ import annotations

import asyncio
from pathlib import Path

from postroom.bus.port import BusAdmin, Message
from postroom.errors import EnvironmentFault
from postroom.observe import get_logger
from postroom.projection.rules import Rules, fold_each, fold_passed_over
from postroom.store import copying, snapshot
from postroom.store.database import Database, Store
from postroom.store.ports import TOLD

log = get_logger(__name__)

BATCH = 256
"""Records that one transaction folds."""


async def rebuild(database: Database, admin: BusAdmin, rules: Rules, kept: Path | None) -> None:
    """Build the projection again. Identity data stays as it is.

    No `Fold` may run on `database` meanwhile.

    Args:
        rules: of all streams, in the order in which to fold them.
        kept: the snapshot that `Retention` took; None where the log was never shortened.

    Raises:
        EnvironmentFault: the snapshot is damaged, or belongs to another log. A damaged one changes nothing.
    """
    if kept is not None:
        await asyncio.to_thread(copying.verify, kept)

    def restore(store: Store) -> None:
        told = store.tasks.cursors.get(TOLD)
        copying.restore_projection(store, kept)
        # No log says who was told, so this cursor is not folded again.
        if told > store.tasks.cursors.get(TOLD):
            store.tasks.cursors.set(TOLD, told)

    await database.write(restore, timeout=None, accounts=False)
    for stream in rules:
        await fold_passed_over(database, admin, rules, stream)
        await _fold_on(database, admin, rules, stream)


async def catch_up(database: Database, kept: Path | None) -> bool:
    """Load the snapshot at `kept` if it is ahead of the projection; returns whether it was.

    Where a power cut, or a person, has put an older projection in place, records that only newer rows hold may have
    left the log. The snapshot has them, and the fold goes on from there.

    Raises:
        EnvironmentFault: the snapshot is damaged.
    """
    if kept is None:
        return False
    held = await asyncio.to_thread(copying.held, kept)
    if not snapshot.older(await database.read(copying.cursors), held):
        return False
    log.warning("the projection is older than its snapshot, which is loaded: %s", kept)
    await asyncio.to_thread(copying.verify, kept)
    await database.write(
        lambda store: copying.restore_projection(store, kept),
        timeout=None,
        accounts=False,
    )
    return True


async def _fold_on(database: Database, admin: BusAdmin, rules: Rules, stream: str) -> None:
    position = await database.read(lambda store: store.cursor(stream))
    if await admin.last_sequence(stream) < position:
        raise EnvironmentFault(
            f"the snapshot is ahead of the log of {stream}: they do not belong together"
        )
    batch: list[Message] = []

    async def commit() -> None:
        await fold_each(database, rules, stream, batch)
        batch.clear()

    async for record in admin.replay(stream, after=position):
        batch.append(record)
        if len(batch) == BATCH:
            await commit()
    if batch:
        await commit()
