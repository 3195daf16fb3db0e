"""All events of an organisation as one stream, for a person who watches.

Records of the log are read from SQL past a cursor, so a reader that comes back with its last cursor misses nothing; a
change only says that there is something to read. The states of workers and of the room are the present ones.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from postroom.control.parts import Parts
from postroom.control.sse import PAGE
from postroom.errors import InvalidInput
from postroom.events import approval_views
from postroom.mail import views as mail_views
from postroom.projection.changes import (
    ALERTS,
    APPROVALS,
    BUS,
    DEADLETTERS,
    MAIL,
    POSTS,
    TASKS,
    WORKERS,
    Signal,
    of_agent,
)
from postroom.protocol import shapes
from postroom.protocol.approvals import POLICY
from postroom.protocol.events import event_id
from postroom.protocol.intervals import STREAM_BEAT
from postroom.protocol.principal import Principal
from postroom.store.approvals import ApprovalRow
from postroom.store.database import Store
from postroom.tasks import views as task_views
from postroom_a2a import strict_json
from postroom_a2a.times import format_time

ALERTS_READ = 50
"""Newest alerts among which the stream looks for new ones."""


_TOPICS = (TASKS, MAIL, POSTS, ALERTS, APPROVALS, DEADLETTERS, WORKERS, BUS)

REMOVED = "removed"
"""State of a worker that is no more."""


@dataclass(frozen=True, slots=True)
class EventCursor:
    """The position of a reader: a sequence in each stream of the log, and of EVENTS the id of an event."""

    tasks: int = 0
    inbox: int = 0
    feed: int = 0
    alerts: int = 0
    approvals: int = 0

    def __str__(self) -> str:
        """The form in which a reader gives it back."""
        return "-".join(map(str, astuple(self)))

    @classmethod
    def parse(cls, text: str) -> EventCursor:
        """Read the cursor that a reader gave back."""
        if re.fullmatch(r"\d{1,18}(-\d{1,18}){4}", text, re.ASCII) is None:
            raise InvalidInput("`after` is not a cursor of this stream", remedy="leave it out")
        return cls(*map(int, text.split("-")))


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event: its kind, its record, and the cursor behind it."""

    kind: str
    record: Mapping[str, Any]
    cursor: EventCursor

    def event(self) -> str:
        """The event in its wire form."""
        data = strict_json.dumps(self.record).decode()
        return f"id: {self.cursor}\nevent: {self.kind}\ndata: {data}\n\n"


async def everything(parts: Parts, me: Principal, after: EventCursor | None) -> AsyncIterator[str]:
    """Events from now on, or past `after`, until the reader goes or the post room ends."""
    # One waiting change is enough: the next read shows everything.
    with parts.changes.listen(*_TOPICS, of_agent(me.uid), limit=1) as listener:
        cursor = await parts.database.read(lambda store: _start(store, after))
        known = None if after else await _Moment.of(parts, me)
        yield StreamEvent("open", {}, cursor).event()
        while True:
            while True:
                page, cursor = await _past(parts, me, cursor)
                for found in page:
                    yield found.event()
                if not page:
                    break
            present = await _Moment.of(parts, me)
            for kind, record in present.since(known):
                now = format_time(time.time())
                yield StreamEvent(kind, {**record, "at": now}, cursor).event()
            known = present
            change = await listener.next(STREAM_BEAT)
            if change is Signal.CLOSED:
                return
            if change is Signal.QUIET:
                yield ": quiet\n\n"


@dataclass(frozen=True, slots=True)
class _Moment:
    """What is told as it is now: the state of each worker by uid, and what the status says beside."""

    workers: Mapping[str, shapes.WorkerChange]
    room: shapes.RoomChange

    @classmethod
    async def of(cls, parts: Parts, me: Principal) -> _Moment:
        unread = await parts.office.unread([me.uid])
        room: shapes.RoomChange = {
            "inbox": unread.get(me.uid, 0),
            "deadletters": await parts.deadletters.count(me.only),
            "alerts": len(await parts.alerts.standing(ALERTS_READ)),
            "bus": parts.bus.statistics().connected,
        }
        return cls(await parts.views.states(), room)

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


def _start(store: Store, after: EventCursor | None) -> EventCursor:
    """Where a reader begins: past what it has, or at the end of the log, as far as it is folded."""
    if after is not None:
        return after
    ends = [store.cursor(name) for name in ("TASKS", "INBOX", "FEED", "ALERTS")]
    return EventCursor(*ends, _last_event(store))


def _last_event(store: Store) -> int:
    """The last id that a folded event can have."""
    return event_id(store.cursor("EVENTS") + 1, 0) - 1


async def _past(
    parts: Parts, me: Principal, cursor: EventCursor
) -> tuple[list[StreamEvent], EventCursor]:
    """The events past `cursor`, at most a page of each kind, and the cursor behind them."""

    def find(store: Store) -> tuple[list[StreamEvent], EventCursor]:
        found = list(_of_log(store, cursor, me.uid, parts.tasks.blocker))
        behind = found[-1].cursor if found else cursor
        asked, behind = _approvals(store, behind)
        return found + asked, behind

    found, behind = await parts.database.read(find)
    alerts = await _alerts(parts, behind)
    return found + alerts, alerts[-1].cursor if alerts else behind


def _approvals(store: Store, cursor: EventCursor) -> tuple[list[StreamEvent], EventCursor]:
    """What was asked for and settled; what a worker's own policy settles concerns nobody."""
    end = _last_event(store)
    rows = store.approvals.news_past(cursor.approvals, PAGE)
    told = [(event, row) for event, row in rows if row is not None and not _by_policy(row)]
    shown = approval_views.views(store, [row for _, row in told])
    found = []
    for (event, _), view in zip(told, shown, strict=True):
        cursor = replace(cursor, approvals=event)
        found.append(StreamEvent("approval", view.as_json(), cursor))
    behind = rows[-1][0] if len(rows) >= PAGE else max(end, cursor.approvals)
    return found, replace(cursor, approvals=behind)


def _by_policy(row: ApprovalRow) -> bool:
    return row.response.get("channel") == POLICY


def _of_log(
    store: Store, cursor: EventCursor, me: str, blocker: Callable[[str], str]
) -> Iterator[StreamEvent]:
    heads = store.tasks.requested_past(cursor.inbox, PAGE)
    mails = store.messages.to_past(me, cursor.inbox, PAGE)
    asked = [("task", view) for view in task_views.listed(store, heads, blocker)]
    came = [("mail", mail) for mail in mail_views.mails(store, mails)]
    # Tasks and mail share the cursor of INBOX: past the end of a full page it would skip rows of that page's kind.
    ends = [rows[-1] for rows in (_seqs(heads), _seqs(mails)) if len(rows) >= PAGE]
    for kind, view in sorted(asked + came, key=_inbox_seq):
        seq = _inbox_seq((kind, view))
        if ends and seq > min(ends):
            break
        cursor = replace(cursor, inbox=seq)
        yield StreamEvent(kind, view.as_json(), cursor)
    rows = store.tasks.events_past(cursor.tasks, PAGE)
    for record in task_views.news(store, rows):
        cursor = replace(cursor, tasks=record["seq"])
        yield StreamEvent("update", record, cursor)
    for post in mail_views.posts(store, store.records.posts_past(cursor.feed, PAGE)):
        cursor = replace(cursor, feed=post.seq)
        yield StreamEvent("post", post.as_json(), cursor)


async def _alerts(parts: Parts, cursor: EventCursor) -> list[StreamEvent]:
    newest = await parts.alerts.standing(ALERTS_READ)
    found = []
    for alert in sorted(newest, key=lambda alert: alert.row.seq):
        if alert.row.seq > cursor.alerts:
            cursor = replace(cursor, alerts=alert.row.seq)
            found.append(StreamEvent("alert", alert.as_json(), cursor))
    return found


def _seqs(rows: list[Any]) -> list[int]:
    return [getattr(row, "requested_seq", None) or row.seq for row in rows]


def _inbox_seq(item: tuple[str, Any]) -> int:
    kind, view = item
    return view.requested if kind == "task" else view.seq
