"""Writes the records of tasks. Each names its predecessor, and no reader sees one before it is on disk.

A record holds its event alone, until a snapshot is due; the first that this log writes of a task holds one, too.

The server refuses a record with another predecessor. After a broken connection that predecessor may be our own
record, whose confirmation was lost. So after a refusal the log tells us who wrote last.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from postroom.bus.port import Stored
from postroom.errors import (
    BusDisconnected,
    LostUpdate,
    MessageTooLarge,
    NoResponders,
    NotFound,
    PostroomError,
    ProtocolViolation,
    Refused,
    RequestTimeout,
)
from postroom.observe import get_logger
from postroom.protocol.tasks import chain_headers
from postroom.tasks.records import TaskRecord, Weight
from postroom_a2a.retry import RetryPolicy

RETRY = RetryPolicy(base=0.2, cap=3.0)
"""Pauses between attempts. The attempts never end: a worker's results must not be lost because the bus is away."""

WEIGHED = 256
"""Tasks whose weight is remembered; the next record of any other task holds a snapshot."""

_log = get_logger(__name__)


class Publisher(Protocol):
    """The `publish` of `postroom.bus.port.MessageBusProvider`."""

    async def publish(
        self,
        subject: str,
        payload: bytes,
        *,
        id: str = "",  # noqa: A002 (the port's word)
        metadata: Mapping[str, str] | None = None,
        timeout: float = 5.0,
    ) -> Stored | None:
        """As `MessageBusProvider.publish`."""


OnStored = Callable[[TaskRecord, int, int], None]


@dataclass(frozen=True, slots=True)
class StoredTask:
    """The last record of a task that counts.

    Attributes:
        sequence: of the record, 0 before the first.
        free: no other runner works on it.
    """

    record: TaskRecord
    sequence: int
    free: bool = True


class TaskSource(Protocol):
    """Reads tasks from the log."""

    async def get(self, task_id: str) -> StoredTask:
        """A task with every record that is stored now.

        Raises:
            NotFound: this worker has no request for such a task.
        """


class TaskLog:
    """The records of one worker's tasks.

    Args:
        bus: the worker's connection.
        run: this start of the worker; the `runner` of its records.
        stored: called for each stored record with its predecessor's sequence and its own.
    """

    def __init__(
        self,
        bus: Publisher,
        source: TaskSource,
        *,
        worker: str,
        run: str,
        policy: RetryPolicy = RETRY,
        stored: OnStored = lambda _record, _after, _sequence: None,
    ) -> None:
        self._bus = bus
        self._source = source
        self._worker = worker
        self._policy = policy
        self._stored = stored
        # Of each task the sequence of its last record, and what it weighs then.
        self._weights: OrderedDict[str, tuple[int, Weight]] = OrderedDict()
        self.run = run

    async def append(self, record: TaskRecord, after: int, *, fitting: bool = False) -> StoredTask:
        """Store `record` behind sequence `after`. Waits for as long as the bus is away or full.

        Args:
            fitting: if the task has no room for it, store a shorter one (`TaskRecord.shortened`).

        Raises:
            LostUpdate: another record follows `after` already; nothing was stored.
            MessageTooLarge, InvalidInput: the record cannot be stored as it is.
            Forbidden: this worker may not write it.
        """
        known, weight = self._weights.get(record.id, (0, None))
        before = weight if known == after else None
        try:
            payload, weight = record.packed(before)
        except MessageTooLarge:
            if not fitting:
                raise
            record = record.shortened()
            payload, weight = record.packed(None)
        self._weights.pop(record.id, None)  # it is known again once the record is stored
        sequence, first = await self._append(record, payload, after)
        if first and not record.state.terminal:
            self._weights[record.id] = sequence, weight
            if len(self._weights) > WEIGHED:
                self._weights.popitem(last=False)
        self._stored(record, after, sequence)
        return StoredTask(record, sequence)

    async def _append(self, record: TaskRecord, payload: bytes, after: int) -> tuple[int, bool]:
        """The sequence, and whether it is of this very payload; else of one that says the same."""
        subject, headers = (
            record.subject(self._worker),
            chain_headers(self._worker, record.id, after),
        )
        failures = 0
        while True:
            try:
                stored = await self._bus.publish(subject, payload, metadata=headers)
            except LostUpdate:
                return await self._own(record, after), False
            except (NoResponders, RequestTimeout, BusDisconnected, Refused) as error:
                failures += 1
                _log.warning("a record of task %s waits: %s", record.id, error)
                await asyncio.sleep(self._policy.delay(failures))
            else:
                if stored is None:
                    raise ProtocolViolation(f"nothing stores {subject}")
                return stored.sequence, True

    async def _own(self, record: TaskRecord, after: int) -> int:
        """The sequence of the stored successor, if it is the record that we meant to write."""
        failures = 0
        while True:
            try:
                stored = await self._source.get(record.id)
                break
            except NotFound:
                raise
            except PostroomError as error:
                failures += 1
                _log.warning("nobody says who wrote task %s: %s", record.id, error)
                await asyncio.sleep(self._policy.delay(failures))
        # Compare the whole record: an earlier one of this start, cut short, may also be stored.
        if stored.sequence > after and stored.record.same_as(record):
            return stored.sequence
        raise LostUpdate(f"task {record.id} was changed by somebody else")


class ExecutorGone(PostroomError):
    """No executor is there, and none will come."""

    code = "executor-gone"


class AttemptLost(PostroomError):
    """The executor of the attempt is gone; the task may begin again."""

    code = "attempt-lost"
