"""Writes records of a task in the name of its worker, where the worker cannot: the next link of the task's chain."""

from __future__ import annotations

import json

from postroom.bus.port import BusAdmin, MessageBusProvider
from postroom.errors import LostUpdate
from postroom.observe import get_logger
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.tasks import chain, chain_headers
from postroom.store.database import Database, Store
from postroom.store.ports import TaskRow
from postroom.tasks.records import TaskRecord, Weight
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import agent_message, apply, status_update

log = get_logger(__name__)

MOST_STRAY = 1000
"""Invalid records that are deleted at once to make room for a valid one."""


def ended(row: TaskRow, state: TaskState, why: str, at: float) -> TaskRecord:
    """The record by which the control plane ends a task.

    Args:
        row: the task as it is.
    """
    # The worker may have written a context of any form and length into its records.
    task = json.loads(row.snapshot) | {"contextId": row.context_id}
    event = status_update(task, state, at, agent_message(task, why))
    return TaskRecord(
        apply(task, event),
        row.request,
        row.requester,
        event if row.seq else None,
        row.attempt,
        row.lost,
        CONTROL_PLANE,
    ).fitting()


class Chain:
    """Appends records of the control plane to tasks' chains."""

    def __init__(self, bus: MessageBusProvider, admin: BusAdmin, database: Database) -> None:
        self._bus = bus
        self._admin = admin
        self._database = database

    async def append(self, row: TaskRow, record: TaskRecord, before: Weight | None = None) -> int:
        """Store `record` as the one that follows `row`; returns its sequence.

        Args:
            before: what the task weighs; None for a record with a snapshot.

        Raises:
            MessageTooLarge, InvalidInput: it cannot be stored.
            LostUpdate: another record follows already, perhaps our own of a moment ago; read the task again.
            StreamFull, RequestTimeout, BusDisconnected: perhaps not in the log.
        """
        payload, _ = record.packed(before)
        try:
            return await self._publish(row, record, payload)
        except LostUpdate:
            if not await self._delete_stray(row):
                raise
        return await self._publish(row, record, payload)

    async def _publish(self, row: TaskRow, record: TaskRecord, payload: bytes) -> int:
        headers = chain_headers(row.worker, row.id, row.seq)
        subject = record.subject(row.worker)
        stored = await self._bus.publish(subject, payload, metadata=headers)
        return 0 if stored is None else stored.sequence

    async def _delete_stray(self, row: TaskRow) -> bool:
        """Delete records that the worker stored on the chain against the rules: they do not count, and block the
        chain.
        """
        chained = (chain(row.worker, row.id),)
        found: list[int] = []
        async for record in self._admin.replay("TASKS", after=row.seq, subjects=chained):
            found.append(record.sequence)
            if len(found) == MOST_STRAY:
                break
        if not found or not await self._database.point(
            lambda store: _do_not_count(store, row, found[-1])
        ):
            return False
        log.warning("%d records of task %s do not count and are deleted", len(found), row.id)
        for sequence in found:
            await self._admin.delete("TASKS", sequence)
        return True


def _do_not_count(store: Store, row: TaskRow, last: int) -> bool:
    """Whether the task is folded past `last` and is still as it was."""
    now = store.tasks.head_by_id(row.id)
    return now is not None and now.seq == row.seq and store.cursor("TASKS") >= last
