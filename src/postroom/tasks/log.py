"""Writing the records of tasks: each names the one that it follows, and nobody hears of one before it is on disk.

The server refuses a record that follows another one than it says. After a connection broke that may be our own
record of a moment ago, whose answer was lost; so on a refusal the log itself is asked who wrote last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from postroom.bus.port import Stored
from postroom.errors import (
    BusDisconnected,
    LostUpdate,
    NoResponders,
    NotFound,
    PostroomError,
    ProtocolViolation,
    Refused,
    RequestTimeout,
)
from postroom.observe import get_logger
from postroom.protocol.tasks import chain_headers
from postroom.tasks.records import TaskRecord
from postroom_a2a.retry import RetryPolicy

RETRY = RetryPolicy(base=0.2, cap=3.0)
"""Pauses between attempts. There is no last one: what an agent has done is not thrown away because the bus is away."""

_log = get_logger(__name__)


class Publisher(Protocol):
    """Publish of `postroom.bus.port.MessageBusProvider`."""

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
        free: nobody else is working on it.
    """

    record: TaskRecord
    sequence: int
    free: bool = True


class TaskSource(Protocol):
    """Tells what the log holds."""

    async def get(self, task_id: str) -> StoredTask:
        """A task as it is when everything that is stored by now is taken into account.

        Raises:
            NotFound: nobody has asked this worker for such a task.
        """


class TaskLog:
    """The records of one worker's tasks.

    Args:
        bus: the worker's connection.
        run: this start of the worker; the `runner` of its records.
        stored: told of each record that is stored: it, the sequence that it follows, and its own.
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
        self.run = run

    async def append(self, record: TaskRecord, after: int) -> int:
        """Store `record` behind sequence `after`; returns its own. Waits for as long as the bus is away or full.

        Raises:
            LostUpdate: another record follows `after` already; nothing was stored.
            MessageTooLarge, InvalidInput: the record cannot be stored as it is.
            Forbidden: this worker may not write it.
        """
        sequence = await self._append(record, after)
        self._stored(record, after, sequence)
        return sequence

    async def _append(self, record: TaskRecord, after: int) -> int:
        subject, payload = record.subject(self._worker), record.encode()
        headers = chain_headers(self._worker, record.id, after)
        failures = 0
        while True:
            try:
                stored = await self._bus.publish(subject, payload, metadata=headers)
            except LostUpdate:
                return await self._own(TaskRecord.decode(payload), after)
            except (NoResponders, RequestTimeout, BusDisconnected, Refused) as error:
                failures += 1
                _log.warning("a record of task %s waits: %s", record.id, error)
                await asyncio.sleep(self._policy.delay(failures))
            else:
                if stored is None:
                    raise ProtocolViolation(f"nothing stores {subject}")
                return stored.sequence

    async def _own(self, record: TaskRecord, after: int) -> int:
        """The sequence of the record that the server has, if it is the one that we meant to write."""
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
        # Not any record of this start: one that was cut short may have been stored, too.
        same = replace(stored.record, event=None) == replace(record, event=None)
        if stored.sequence > after and same:
            return stored.sequence
        raise LostUpdate(f"task {record.id} was changed by somebody else")


class ExecutorGone(PostroomError):
    """Nobody is there to work on tasks, and nobody will be."""

    code = "executor-gone"


class AttemptLost(PostroomError):
    """Whoever worked on the task is gone; it may be begun again."""

    code = "attempt-lost"
