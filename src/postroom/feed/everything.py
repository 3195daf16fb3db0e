"""All that happens in an organisation, for a person who watches.

Records of the log are read from SQL past a cursor; a change only says that there is something to read. The states of
workers and of the room are the present ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from postroom.events import approval_views
from postroom.feed.events import (
    PAGE,
    FeedCursor,
    FeedEvent,
    FeedPage,
    FeedSource,
    Happening,
    is_full,
    told,
)
from postroom.feed.records import Connected
from postroom.mail import views as mail_views
from postroom.mail.alerts import AlertService, AlertView
from postroom.mail.deadletter_service import DeadLetterService
from postroom.mail.office import PostOffice
from postroom.projection.changes import (
    ALERTS,
    APPROVALS,
    BUS,
    DEADLETTERS,
    MAIL,
    POSTS,
    TASKS,
    WORKERS,
    Changes,
    of_agent,
)
from postroom.projection.tail import TailPage
from postroom.protocol import shapes
from postroom.protocol.approvals import POLICY
from postroom.protocol.events import event_id
from postroom.protocol.principal import Principal
from postroom.store.approvals import ApprovalRow
from postroom.store.database import Database, Store
from postroom.tasks import views as task_views
from postroom.tasks.service import OrgTaskService
from postroom.workers.status import WorkerViews
from postroom_a2a.times import format_time

ALERTS_READ = 50
"""Newest alerts among which the stream looks for new ones."""

_TOPICS = (TASKS, MAIL, POSTS, ALERTS, APPROVALS, DEADLETTERS, WORKERS, BUS)

REMOVED = "removed"
"""State of a worker that is no more."""


@dataclass(frozen=True, slots=True)
class EventCursor(FeedCursor):
    """The position of a reader: a sequence in each stream of the log, and of EVENTS the id of an event."""

    tasks: int = 0
    inbox: int = 0
    feed: int = 0
    alerts: int = 0
    approvals: int = 0


@dataclass(frozen=True, slots=True)
class Watched:
    """The parts of an organisation that are watched."""

    changes: Changes
    database: Database
    office: PostOffice
    deadletters: DeadLetterService
    alerts: AlertService
    tasks: OrgTaskService
    views: WorkerViews
    bus: Connected


class EverythingFeed(FeedSource[EventCursor | None]):
    """The events past a cursor, from now on for None. The first is `open`."""

    limit = 1  # the next read shows everything

    def __init__(self, room: Watched, me: Principal) -> None:
        super().__init__(room.changes, *_TOPICS, of_agent(me.uid))
        self._room = room
        self._me = me
        self._known: _Moment | None = None

    async def open(self, after: EventCursor | None) -> FeedPage[EventCursor | None]:
        cursor = after or await self._room.database.read(_end)
        if after is None:
            self._known, _ = await self._moment()
        return TailPage([FeedEvent("open", {}, str(cursor))], cursor, more=True)

    async def read(self, after: EventCursor | None) -> FeedPage[EventCursor | None]:
        cursor = after or EventCursor()
        find = partial(_of_log, cursor=cursor, me=self._me.uid, blocker=self._room.tasks.blocker)
        pages = await self._room.database.read(find)
        events, cursor = told(chain(*pages), cursor)
        if any(map(is_full, pages)):
            return TailPage(events, cursor, more=True)
        moment, standing = await self._moment()
        raised = [
            Happening("alerts", alert.row.seq, "alert", alert.as_json())
            for alert in sorted(standing, key=lambda alert: alert.row.seq)
            if alert.row.seq > cursor.alerts
        ]
        alerts, cursor = told(raised, cursor)
        now = {"at": format_time(time.time())}
        news = [
            FeedEvent(kind, {**record, **now}, str(cursor))
            for kind, record in moment.since(self._known)
        ]
        self._known = moment
        return TailPage([*events, *alerts, *news], cursor)

    async def _moment(self) -> tuple[_Moment, Sequence[AlertView]]:
        room, me = self._room, self._me
        unread = await room.office.unread([me.uid])
        standing = await room.alerts.standing(ALERTS_READ)
        counted: shapes.RoomChange = {
            "inbox": unread.get(me.uid, 0),
            "deadletters": await room.deadletters.count(me.only),
            "alerts": len(standing),
            "bus": room.bus.statistics().connected,
        }
        return _Moment(await room.views.states(), counted), standing


@dataclass(frozen=True, slots=True)
class _Moment:
    """What is told as it is now: the state of each worker by uid, and what the status says beside."""

    workers: Mapping[str, shapes.WorkerChange]
    room: shapes.RoomChange

    def since(self, known: _Moment | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What differs from what was told."""
        before = known.workers if known is not None else {}
        for uid, worker in self.workers.items():
            if before.get(uid) != worker:
                yield "worker", worker
        for uid in before.keys() - self.workers.keys():
            yield "worker", {**before[uid], "state": REMOVED, "detail": ""}
        if known is None or known.room != self.room:
            yield "room", self.room


def _end(store: Store) -> EventCursor:
    """The end of the log, as far as it is folded."""
    ends = [store.cursor(name) for name in ("TASKS", "INBOX", "FEED", "ALERTS")]
    return EventCursor(*ends, _last_event(store))


def _last_event(store: Store) -> int:
    """The last id that a folded event can have."""
    return event_id(store.cursor("EVENTS") + 1, 0) - 1


def _of_log(
    store: Store, cursor: EventCursor, me: str, blocker: task_views.Blocker
) -> list[list[Happening]]:
    """What the log has past `cursor`, at most a page of each kind."""
    rows = store.tasks.events_past(cursor.tasks, PAGE)
    news = {record["seq"]: record for record in task_views.news(store, rows)}
    posts = mail_views.posts(store, store.records.posts_past(cursor.feed, PAGE))
    return [
        _inbox(store, cursor.inbox, me, blocker),
        [Happening("tasks", row.seq, "update", news.get(row.seq)) for row in rows],
        [Happening("feed", post.seq, "post", post.as_json()) for post in posts],
        _approvals(store, cursor.approvals),
    ]


def _inbox(store: Store, after: int, me: str, blocker: task_views.Blocker) -> list[Happening]:
    heads = store.tasks.requested_past(after, PAGE)
    rows = store.messages.to_past(me, after, PAGE)
    tasks, mails = task_views.listed(store, heads, blocker), mail_views.mails(store, rows)
    pages = [
        [Happening("inbox", task.requested, "task", task.as_json()) for task in tasks],
        [Happening("inbox", mail.seq, "mail", mail.as_json()) for mail in mails],
    ]
    # Both share a cursor: past the end of a full page it would skip rows of that page's kind.
    end = min((page[-1].number for page in pages if is_full(page)), default=math.inf)
    found = [one for page in pages for one in page if one.number <= end]
    return sorted(found, key=lambda one: one.number)


def _approvals(store: Store, after: int) -> list[Happening]:
    """What was asked for and settled; what a worker's own policy settles concerns nobody."""
    rows = store.approvals.news_past(after, PAGE)
    asked = {event: row for event, row in rows if row is not None and not _by_policy(row)}
    views = approval_views.views(store, list(asked.values()))
    shown = {event: view.as_json() for event, view in zip(asked, views, strict=True)}
    found = [Happening("approvals", event, "approval", shown.get(event)) for event, _ in rows]
    if not is_full(found):
        # A read looks at every event past its cursor, so that is kept near the end.
        found.append(Happening("approvals", max(after, _last_event(store))))
    return found


def _by_policy(row: ApprovalRow) -> bool:
    return row.response.get("channel") == POLICY
