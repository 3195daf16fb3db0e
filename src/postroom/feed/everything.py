"""All that happens in an organisation, for a person who watches.

Records of the log are read from SQL past a cursor; a change only says that there is something to read. The states of
workers and of the room are the present ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from postroom.events import approvals
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
from postroom.mail import views as mail_views
from postroom.mail.alerts import AlertView
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
from postroom.store.database import Database, Store
from postroom.tasks import views as task_views
from postroom_a2a.times import format_time

ALERTS_READ = 50
"""Newest alerts among which the stream looks for new ones."""

_TOPICS = (TASKS, MAIL, POSTS, ALERTS, APPROVALS, DEADLETTERS, WORKERS, BUS)


@dataclass(frozen=True, slots=True)
class EventCursor(FeedCursor):
    """The position of a reader: a sequence in each stream of the log, and of EVENTS the id of an event."""

    tasks: int = 0
    inbox: int = 0
    feed: int = 0
    alerts: int = 0
    approvals: int = 0


@dataclass(frozen=True, slots=True)
class Moment:
    """How things are now: the newest alerts, the state of each worker by uid, and what the status says beside."""

    alerts: Sequence[AlertView]
    workers: Mapping[str, shapes.WorkerChange]
    room: shapes.RoomChange

    def since(self, known: Moment | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """What differs from what was told."""
        before = known.workers if known is not None else {}
        for uid, worker in self.workers.items():
            if before.get(uid) != worker:
                yield "worker", worker
        for uid in before.keys() - self.workers.keys():
            yield "worker", {**before[uid], "state": "removed", "detail": ""}
        if known is None or known.room != self.room:
            yield "room", self.room


class EverythingFeed(FeedSource[EventCursor | None]):
    """What happens past a cursor, from now on for None. The first event is `open`.

    Args:
        me: uid of who watches.
        look: how things are now.
    """

    limit = 1  # the next read shows everything

    def __init__(
        self,
        changes: Changes,
        database: Database,
        me: str,
        blocker: task_views.Blocker,
        look: Callable[[], Awaitable[Moment]],
    ) -> None:
        super().__init__(changes, *_TOPICS, of_agent(me))
        self._database = database
        self._find = partial(_of_log, me=me, blocker=blocker)
        self._look = look
        self._known: Moment | None = None

    async def open(self, after: EventCursor | None) -> FeedPage[EventCursor | None]:
        cursor = after or await self._database.read(_end)
        if after is None:
            self._known = await self._look()
        return TailPage([FeedEvent("open", {}, str(cursor))], cursor, more=True)

    async def read(self, after: EventCursor | None) -> FeedPage[EventCursor | None]:
        cursor = after or EventCursor()
        pages = await self._database.read(partial(self._find, cursor=cursor))
        events, cursor = told(chain(*pages), cursor)
        if any(map(is_full, pages)):
            return TailPage(events, cursor, more=True)
        moment = await self._look()
        raised = [
            Happening("alerts", alert.row.seq, "alert", alert.as_json())
            for alert in sorted(moment.alerts, key=lambda alert: alert.row.seq)
            if alert.row.seq > cursor.alerts
        ]
        alerts, cursor = told(raised, cursor)
        at = format_time(time.time())
        news = [
            FeedEvent(kind, {**record, "at": at}, str(cursor))
            for kind, record in moment.since(self._known)
        ]
        self._known = moment
        return TailPage([*events, *alerts, *news], cursor)


def _end(store: Store) -> EventCursor:
    """The end of the log, as far as it is folded."""
    ends = [store.cursor(name) for name in ("TASKS", "INBOX", "FEED", "ALERTS")]
    return EventCursor(*ends, store.last_event)


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
    asked = {
        event: row
        for event, row in rows
        if row is not None and row.response.get("channel") != POLICY
    }
    views = approvals.views(store, list(asked.values()))
    shown = {event: view.as_json() for event, view in zip(asked, views, strict=True)}
    found = [Happening("approvals", event, "approval", shown.get(event)) for event, _ in rows]
    if not is_full(found):
        # A read looks at every event past its cursor, so that is kept near the end.
        found.append(Happening("approvals", max(after, store.last_event)))
    return found
