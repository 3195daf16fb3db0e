"""What is followed by one number: mail, posts, announcements, a task, what a worker's agent does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from postroom.bus.port import MessageBusProvider
from postroom.directory.presence import Callers
from postroom.errors import PostroomError
from postroom.events.service import EventLog, shown
from postroom.feed.events import OPENED, PAGE, FeedEvent, FeedPage, FeedSource
from postroom.mail.inbox import Inboxes
from postroom.mail.office import PostOffice
from postroom.mail.outbox import Outbox
from postroom.observe.supervision import well
from postroom.projection.changes import (
    BUS,
    LISTENER_LIMIT,
    WORKERS,
    Change,
    Changes,
    Topic,
    of_agent,
    of_chat,
    of_outbox,
    of_project,
    of_worker_events,
)
from postroom.projection.tail import Next, Quiet, TailPage
from postroom.protocol import shapes
from postroom.store.events import EventRow
from postroom.store.ports import TaskEventRow, TaskRow
from postroom.tasks import views as task_views
from postroom.tasks.operations import TaskChanges
from postroom.tasks.service import OrgTaskService
from postroom_a2a.task_state import TaskState
from postroom_a2a.times import format_time

CHECK_INTERVAL = 1.0
"""Seconds between two checks of the connection; a shorter outage is not reported."""

BUS_AWAY = "the bus does not answer"

FROM_NOW = -1
"""Instead of the id of a worker's event: only what comes later."""


# ── mail, posts, announcements ───────────────────────────────────────────────────────────────────────────


class RecordFeed(FeedSource[int]):
    """Records of one kind, read again after a change of that kind; their sequence is the cursor.

    Args:
        read: the first `PAGE` records past the sequence `after`, or the newest without it.
    """

    limit = 1  # the next read shows everything
    newest = True
    """A reader that has none begins with the newest, and not with the first."""

    def __init__(
        self,
        changes: Changes,
        topic: Topic,
        kind: str,
        read: Callable[..., Awaitable[Sequence[Any]]],
    ) -> None:
        super().__init__(changes, topic)
        self._kind = kind
        self._read = read

    def concerns(self, change: Change) -> bool:
        return change.kind == self._kind

    async def open(self, after: int) -> FeedPage[int]:
        if after or not self.newest:
            return TailPage([OPENED], after, more=True)
        found = await self._read()
        return TailPage([OPENED, *self._events(found)], found[-1].seq if found else 0)

    async def read(self, after: int) -> FeedPage[int]:
        found = await self._read(after=after or -1)  # 0 would be the newest
        cursor = found[-1].seq if found else after
        return TailPage(self._events(found), cursor, more=len(found) >= PAGE)

    async def heard(self, change: Change | Quiet, after: int) -> FeedPage[int] | None:
        return None if isinstance(change, Change) and change.seq > after else TailPage((), after)

    def _events(self, found: Sequence[Any]) -> list[FeedEvent]:
        return [FeedEvent(self._kind, record.as_json(), record.seq) for record in found]


class InboxFeed(RecordFeed):
    """Events `mail`: what is sent to `reader` and not read; `reader` counts as there meanwhile."""

    newest = False

    def __init__(self, changes: Changes, inboxes: Inboxes, callers: Callers, reader: str) -> None:
        past = partial(inboxes.past, reader, unread=True, limit=PAGE, follows=True)
        super().__init__(changes, of_agent(reader), "mail", past)
        self._callers = callers
        self._reader = reader

    def concerns(self, change: Change) -> bool:
        return change.kind == "mail" and change.recipient == self._reader

    @contextmanager
    def listen(self) -> Generator[Next]:
        with self._callers.waiting(self._reader), super().listen() as following:
            yield following


class ChatFeed(RecordFeed):
    """Events `mail` between `me` and another, and `receipt` for a message that has another state."""

    limit = LISTENER_LIMIT

    def __init__(self, changes: Changes, office: PostOffice, me: str, other: str) -> None:
        read = partial(office.chat, me, other, limit=PAGE)
        super().__init__(changes, of_chat(me, other), "mail", read)
        self._office = office
        self._me = me

    def concerns(self, change: Change) -> bool:
        return change.kind in ("mail", "receipt")

    async def heard(self, change: Change | Quiet, after: int) -> FeedPage[int] | None:
        if not isinstance(change, Change) or change.kind != "receipt":
            return await super().heard(change, after)
        try:
            mail = await self._office.get(change.id, self._me)
        except PostroomError:
            return TailPage((), after)  # the message was deleted since
        return TailPage([FeedEvent("receipt", mail.as_json())], after)


def posts(changes: Changes, office: PostOffice, project: str) -> RecordFeed:
    """Events `post` of a project."""
    read = partial(office.posts, project, limit=PAGE)
    return RecordFeed(changes, of_project(project), "post", read)


def announcements(changes: Changes, outbox: Outbox, sender: str) -> RecordFeed:
    """Events `announcement` of an agent's outbox."""
    read = partial(outbox.of, sender, limit=PAGE)
    return RecordFeed(changes, of_outbox(sender), "announcement", read)


# ── a task ───────────────────────────────────────────────────────────────────────────────────────────────


async def watch_bus(bus: MessageBusProvider, changes: Changes) -> None:
    """Publish a change when the bus has gone and when it is back, until cancelled.

    The count of connections shows an outage between two checks, too: a reader may have seen during it that the bus was
    away.
    """
    seen: tuple[bool, int] | None = None
    while True:
        found = bus.statistics()
        now = (found.connected, found.reconnects)
        if now != (seen or now):
            changes.publish([Change("bus", 0)])
        seen = now
        well()
        await asyncio.sleep(CHECK_INTERVAL)


class TaskFeed(TaskChanges[FeedEvent]):
    """Events `update` of a task until its end, and `trouble`: what holds it up, "" once nothing does."""

    def __init__(
        self, changes: Changes, tasks: OrgTaskService, bus: MessageBusProvider, task: str
    ) -> None:
        super().__init__(changes, tasks, task, WORKERS, BUS)
        self._bus = bus
        self._said = ""

    def shown(self, change: TaskEventRow, task: TaskRow) -> FeedEvent:
        return FeedEvent("update", task_views.event(change, task).as_json(), change.seq)

    async def open(self, after: int) -> FeedPage[int]:
        page = await self.read(after)
        return replace(page, records=[OPENED, *self._trouble(), *page.records])

    async def heard(self, change: Change | Quiet, after: int) -> FeedPage[int] | None:
        if isinstance(change, Change) and change.kind != "task":
            return TailPage(list(self._trouble()), after)
        return await super().heard(change, after)

    def _trouble(self) -> Iterator[FeedEvent]:
        """What holds the task up, if that has changed."""
        task, worker = self.known.row, self.known.parties[self.known.row.worker]
        text, why = "", self._tasks.blocker(worker.uid)
        if not self._bus.statistics().connected:
            text = f"{BUS_AWAY}: it goes on when the bus is back"
        elif why and not (task.final or TaskState(task.state).interrupted):
            text = task_views.blocked(worker.nick or worker.uid, why)
        if text != self._said:
            self._said = text
            trouble: shapes.Trouble = {
                "task": task.id,
                "text": text,
                "worker": worker.nick if why else "",
                "at": format_time(time.time()),
            }
            yield FeedEvent("trouble", trouble)


# ── what a worker's agent does ───────────────────────────────────────────────────────────────────────────


class WorkerFeed(FeedSource[int]):
    """What a worker's agent does, past an id or `FROM_NOW`; the kind of each event is its own."""

    def __init__(self, changes: Changes, events: EventLog, worker: str) -> None:
        super().__init__(changes, of_worker_events(worker))
        self._events = events
        self._worker = worker

    async def open(self, after: int) -> FeedPage[int]:
        if after == FROM_NOW:
            after = await self._events.last_id(self._worker)
        return TailPage((), after, more=True)

    async def read(self, after: int) -> FeedPage[int]:
        found = await self._events.past(self._worker, after, PAGE)
        return self._page(found, after, more=len(found) >= PAGE)

    async def heard(self, change: Change | Quiet, after: int) -> FeedPage[int]:
        new = [row for row in change.row if row.id > after] if isinstance(change, Change) else []
        return self._page(new, after)

    def _page(self, rows: Sequence[EventRow], after: int, *, more: bool = False) -> FeedPage[int]:
        events = [FeedEvent(row.kind, shown(row), row.id) for row in rows]
        return TailPage(events, rows[-1].id if rows else after, more)
