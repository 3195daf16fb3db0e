"""A post office that folds tasks, and workers that run them, over a bus of its own."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import select

from postroom.mail import projection
from postroom.mail.clerk import Clerk
from postroom.projection.changes import of_task
from postroom.projection.fold import Fold
from postroom.projection.rules import together
from postroom.projection.submit import append_alert
from postroom.protocol import priority
from postroom.protocol.alerts import Alert
from postroom.protocol.envelope import TaskRequest
from postroom.protocol.priority import Requested, Update
from postroom.protocol.receipts import Receipt, State
from postroom.protocol.tasks import chain_headers, task_id
from postroom.store.alerts import AlertRow
from postroom.store.database import Database, Store
from postroom.store.ports import TOLD, TaskRow
from postroom.store.schema import PROJECTION
from postroom.tasks.chain import Chain
from postroom.tasks.clerk import TaskClerk
from postroom.tasks.records import TaskRecord
from postroom.tasks.rules import ORDER
from postroom.tasks.rules import RULES as TASK_RULES
from postroom_a2a.messages import text_message
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import apply, status_update
from tests.mail.desk import NOW, SECONDS, Desk, Worker, desk_of

RULES = together(projection.RULES, TASK_RULES)

RUN = "1" * 32


@dataclass
class TaskDesk(Desk):
    """The parts of a post office that has tasks."""

    def __post_init__(self) -> None:
        self.task_clerk = self._task_clerk(self.database)
        super().__post_init__()

    def _task_clerk(self, database: Database) -> TaskClerk:
        async def raise_alert(alert: Alert) -> None:
            await append_alert(self.bus, alert)

        self.chain = Chain(self.bus, self.admin, database)
        return TaskClerk(self.bus, database, self.chain, raise_alert)

    def new_fold(self, database: Database | None = None) -> Fold:
        target = database or self.database
        after = (
            (Clerk(self.bus, target).after, self._task_clerk(target).after)
            if database
            else (self.clerk.after, self.task_clerk.after)
        )
        return Fold(self.admin, target, self.changes, RULES, after, ORDER)

    async def ask(self, asker: Worker, worker: str, *, stream: bool = False) -> TaskRow:
        """`asker` asks for a task; returns it as it is at first."""
        asks = TaskRequest(stream=stream)
        envelope = await asker.send(worker, "do it", request=asks, expects_reply=True)
        return await self.task(task_id(worker, asker.uid, envelope.id), 0)

    async def task(self, task: str, seq: int) -> TaskRow:
        """The task once it is folded up to sequence `seq` of its records."""

        async def read() -> TaskRow | None:
            return await self.database.read(lambda store: store.tasks.task_by_id(task))

        def there(row: TaskRow | None) -> bool:
            return row is not None and row.seq >= seq

        found = await self.changes.until(of_task(task), read, there, SECONDS)
        assert found is not None
        assert there(found), "the task was not folded in time"
        return found

    async def final(self, task: str) -> TaskRow:
        """The task once it is final."""

        async def read() -> TaskRow | None:
            return await self.database.read(lambda store: store.tasks.task_by_id(task))

        found = await self.changes.until(
            of_task(task), read, lambda row: row is not None and row.final, SECONDS
        )
        assert found is not None
        assert found.final, "the task did not end in time"
        return found

    async def write(
        self, worker: Worker, row: TaskRow, state: TaskState, text: str = ""
    ) -> TaskRow:
        """`worker` stores the record that follows `row`; returns the task when it is folded."""
        record = following(row, state, text)
        stored = await worker.bus.publish(
            record.subject(worker.uid),
            record.encode(),
            metadata=chain_headers(worker.uid, row.id, row.seq),
        )
        assert stored is not None
        return await self.task(row.id, stored.sequence)

    async def taken(self, worker: Worker, row: TaskRow) -> TaskRow:
        """`worker` takes the task and begins it."""
        row = await self.write(worker, row, TaskState.SUBMITTED)
        return await self.write(worker, row, TaskState.WORKING)

    async def settled(self) -> None:
        """Return when all that is in the log is folded, and what follows from it, and from that."""
        for _ in range(3):
            for stream in RULES:
                last = await self.admin.last_sequence(stream)
                await self.fold.reached(stream, last, SECONDS)
            await self.fold.settled(SECONDS)

    async def overtaking(self, worker: str) -> list[str]:
        """The tasks that `worker` was told of as lying behind messages."""
        subject = f"worker.{worker}.priority.postroom"
        found = [
            priority.decode(m.payload)
            async for m in self.admin.replay("PRIORITY", subjects=(subject,))
        ]
        return [each.task for each in found if isinstance(each, Requested)]

    async def updates(self, to: str) -> list[Update]:
        """What `to` was told, oldest first."""
        subject = f"worker.{to}.priority.postroom"
        found = [
            priority.decode(m.payload)
            async for m in self.admin.replay("PRIORITY", subjects=(subject,))
        ]
        return [each for each in found if isinstance(each, Update)]

    async def ends(self, to: str, message: str) -> list[State]:
        """The ends of that message of `to` that the post office told, oldest first."""
        subject = f"worker.{to}.receipts.postroom"
        found = [
            Receipt.decode(m.payload)
            async for m in self.admin.replay("RECEIPTS", subjects=(subject,))
        ]
        ends = (State.ANSWERED, State.DEAD)
        return [each.state for each in found if each.message_id == message and each.state in ends]

    async def raised(self) -> list[AlertRow]:
        return await self.database.read(lambda store: store.alerts.newest(100))


def tables(store: Store) -> dict[str, list[tuple]]:
    """Every row of the projection, without the clerk's own place, which does not follow from the log."""
    return {
        table.name: [
            tuple(row)
            for row in store.session.rows(select(table).order_by(*table.primary_key))
            if TOLD not in row
        ]
        for table in PROJECTION
    }


def following(row: TaskRow, state: TaskState, text: str = "") -> TaskRecord:
    """The record of the worker's that follows `row`."""
    task = json.loads(row.snapshot)
    if row.seq == 0:
        first = TaskRecord(task, row.request, row.requester, runner=RUN)
        return first if state is TaskState.SUBMITTED else _changed(first, state, text, event=False)
    before = TaskRecord(task, row.request, row.requester, None, row.attempt or 1, row.lost, RUN)
    return _changed(before, state, text, event=True)


def _changed(record: TaskRecord, state: TaskState, text: str, *, event: bool) -> TaskRecord:
    said = text_message("said", text) if text else None
    change = status_update(record.task, state, NOW, said)
    return replace(record, task=apply(record.task, change), event=change if event else None)


def open_desk(
    folder: Path, backend: str = "nats", *, fold: bool = True
) -> AbstractAsyncContextManager[TaskDesk]:
    """A post office with tasks over a bus of its own."""
    return desk_of(TaskDesk, folder, backend, fold=fold)
