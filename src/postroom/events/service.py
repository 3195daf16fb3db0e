"""Events of workers: appending them to the log, and reading what is folded."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from postroom.bus.port import BusAdmin, MessageBusProvider, Stored
from postroom.errors import InvalidInput, MessageTooLarge, NotFound, Refused, RequestTimeout
from postroom.projection.following import Quota
from postroom.projection.submit import PUBLISH_RETRY
from postroom.protocol import shapes, subjects
from postroom.protocol.approvals import as_reported
from postroom.protocol.event_bounds import encoded
from postroom.protocol.events import EventBatch, event_id
from postroom.protocol.limits import (
    MAX_EVENTS,
    MAX_EVENTS_BYTES,
    MAX_REPORTED_BYTES,
    MAX_REPORTED_EVENTS,
)
from postroom.store.database import Database, Store
from postroom.store.events import EventRow, Usage
from postroom_a2a import strict_json
from postroom_a2a.times import format_time

BYTES_WINDOW, EVENTS_WINDOW = 3600.0, 600.0
"""Seconds for which a worker has its shares of bytes and of events."""


@dataclass(frozen=True, slots=True)
class Appended:
    """A report in the log.

    Attributes:
        ids: of its events; an event that an earlier report brought keeps the id that it had.
        next: number of the next event of that run, behind all that is known of it; 0 without a run.
        at: sequence of its record; 0 if earlier reports brought all of it.
    """

    ids: tuple[int, ...]
    next: int
    at: int


class EventLog:
    """The events of one organisation's workers.

    Args:
        space: asked before anything is written; raises `StateUnwritable` while the disk is full.
    """

    def __init__(
        self,
        bus: MessageBusProvider,
        admin: BusAdmin,
        database: Database,
        *,
        space: Callable[[], None] = lambda: None,
    ) -> None:
        self._bus = bus
        self._admin = admin
        self._database = database
        self._space = space
        self._bytes = Quota(MAX_REPORTED_BYTES, BYTES_WINDOW)
        self._count = Quota(MAX_REPORTED_EVENTS, EVENTS_WINDOW)
        # The run of each worker that reported last, and its next number.
        self._next: dict[str, tuple[str, int]] = {}

    async def append(
        self, worker: str, events: Sequence[Mapping[str, Any]], run: str = "", first: int = 0
    ) -> Appended:
        """Append events of `worker` as one record; on return they are on disk.

        Args:
            run, first: the sidecar's run, and the number of the first event in it: the same number is the same
                event, and counts once. Without them they are the control plane's own.

        Raises:
            InvalidInput: an event has no form in JSON.
            MessageTooLarge: together they are too many or too large; nothing was stored.
            Refused: the worker has reported too much of late; nothing was stored.
            StateUnwritable, StreamFull: there is no room; nothing was stored.
            RequestTimeout, BusDisconnected: perhaps stored; report again with the same numbers.
        """
        self._space()
        known: list[int] = []
        last = 0
        if run and self._next.get(worker) != (run, first):
            # After a crash a sidecar begins with what it does not know to be taken: it is told how far it was.
            last, known = await self._known(worker, run, first, len(events))
            past = min(max(last + 1 - first, 0), len(events))
            events, first = events[past:], first + past
            if not events:
                return self._appended(worker, run, known, max(first, last + 1), 0)
        payload = _record(events, run, first)
        if run:
            self._check_share(worker, len(payload), len(events))
        # Agents cannot publish there, so nobody else can have used this id.
        made = f"{worker}.{run}.{first}" if run else ""
        stored = await self._publish(subjects.events(worker), payload, made)
        count = len(events)
        if stored.duplicate:
            self._bytes.give_back(worker, len(payload))
            self._count.give_back(worker, count)
            before = await self._admin.get(stored.stream, stored.sequence)
            count = min(count, len(EventBatch.decode(before.payload).events))
        ids = [event_id(stored.sequence, place) for place in range(count)]
        return self._appended(worker, run, [*known, *ids], first + count, stored.sequence)

    async def _known(self, worker: str, run: str, first: int, count: int) -> tuple[int, list[int]]:
        """The last number of a run that is folded, and the ids of those of a report that are."""

        def find(store: Store) -> tuple[int, list[int]]:
            last = store.events.last_number(worker, run)
            return last, store.events.ids(worker, run, first, count) if last >= first else []

        return await self._database.point(find)

    def _appended(
        self, worker: str, run: str, ids: Sequence[int], following: int, at: int
    ) -> Appended:
        if not run:
            return Appended(tuple(ids), 0, at)
        self._next[worker] = run, following
        return Appended(tuple(ids), following, at)

    def _check_share(self, worker: str, size: int, count: int) -> None:
        """Refuse what is over a worker's share: the stream and its fold are everybody's, people's answers in it too."""
        now = time.monotonic()
        of_bytes = self._bytes.take(worker, now, size)
        of_events = self._count.take(worker, now, count)
        if not (of_bytes and of_events):
            raise Refused(
                "this worker reports more events than its share", remedy="report them again later"
            )

    async def _publish(self, subject: str, payload: bytes, made: str) -> Stored:
        attempts = PUBLISH_RETRY.attempts if made else 1
        for attempt in range(attempts):
            try:
                stored = await self._bus.publish(subject, payload, id=made)
            except RequestTimeout:
                if attempt == attempts - 1:
                    raise
                await asyncio.sleep(PUBLISH_RETRY.delay(attempt + 1))
                continue
            if stored is None:
                raise NotFound(f"no stream stores {subject!r}")
            return stored
        raise AssertionError

    async def past(self, worker: str, after: int, limit: int) -> list[EventRow]:
        """The first events of a worker past the id `after`, oldest first."""

        def find(store: Store) -> list[EventRow]:
            return store.events.past(worker, after, limit)

        return await self._database.read(find)

    async def newest(self, worker: str, limit: int, before: int = 0) -> list[EventRow]:
        """The last events of a worker, oldest first; of those before the id `before` unless it is 0."""
        return await self._database.read(lambda store: store.events.newest(worker, limit, before))

    async def usage_of_task(self, worker: str, task: str) -> Usage:
        """What a worker has used for one of its tasks."""
        return await self._database.point(lambda store: store.events.usage_of_task(worker, task))

    async def usage_of_workers(self) -> dict[str, Usage]:
        """What each worker has used, by its uid."""
        return await self._database.read(lambda store: store.events.usage_of_workers())

    async def last_id(self, worker: str) -> int:
        """The id of a worker's last event, 0 for none."""
        return await self._database.point(lambda store: store.events.last_id(worker))


def _record(events: Sequence[Mapping[str, Any]], run: str, first: int) -> bytes:
    """The payload of `EventBatch`, each event within its bounds."""
    if not 0 < len(events) <= MAX_EVENTS:
        raise MessageTooLarge(f"a report has 1 to {MAX_EVENTS} events")
    try:
        parts = [encoded(event) for event in events]
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"an event has no form in JSON: {error}") from error
    body = b",".join(parts)
    if len(body) > MAX_EVENTS_BYTES:
        raise MessageTooLarge(
            f"the events of one report are over {MAX_EVENTS_BYTES} bytes",
            remedy="report fewer at once",
        )
    numbered = b'"run":%b,"first":%d,' % (json.dumps(run).encode(), first) if run else b""
    return b'{"v":1,%b"events":[%b]}' % (numbered, body)


def shown(row: EventRow) -> shapes.WorkerEvent:
    """Shape of the API."""
    # What the agent said cannot change which event it is, and whose.
    known = {"id": row.id, "at": format_time(row.at), "worker": row.worker, "type": row.kind}
    said = strict_json.loads(row.event.encode())
    return (as_reported(said) if row.run else said) | known
