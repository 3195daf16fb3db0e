"""All events of an organisation as one stream, for a person who watches.

Records of the log are read from SQL past a cursor, so a reader that comes back with its last cursor misses nothing; a
change only says that there is something to read. The states of workers are the present ones.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from postroom.control.parts import Parts
from postroom.control.sse import PAGE
from postroom.errors import InvalidInput
from postroom.mail import views as mail_views
from postroom.projection.changes import ALERTS, MAIL, POSTS, TASKS, WORKERS, Signal
from postroom.protocol.intervals import STREAM_BEAT
from postroom.protocol.principal import Principal
from postroom.store.database import Store
from postroom.tasks import views as task_views
from postroom_a2a import strict_json
from postroom_a2a.times import format_time

ALERTS_READ = 50
"""Newest alerts among which the stream looks for new ones."""


@dataclass(frozen=True, slots=True)
class EventCursor:
    """The position of a reader: a sequence in each stream of the log."""

    tasks: int = 0
    inbox: int = 0
    feed: int = 0
    alerts: int = 0

    def __str__(self) -> str:
        """The form in which a reader gives it back."""
        return f"{self.tasks}-{self.inbox}-{self.feed}-{self.alerts}"

    @classmethod
    def parse(cls, text: str) -> EventCursor:
        """Read the cursor that a reader gave back."""
        if re.fullmatch(r"\d{1,18}(-\d{1,18}){3}", text, re.ASCII) is None:
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
    with parts.changes.listen(TASKS, MAIL, POSTS, ALERTS, WORKERS, limit=1) as listener:
        cursor = after or await parts.database.read(_present)
        known = {} if after else await parts.views.states()
        yield StreamEvent("open", {}, cursor).event()
        while True:
            while page := await _past(parts, me, cursor):
                for found in page:
                    cursor = found.cursor
                    yield found.event()
            present = await parts.views.states()
            for worker in (worker for uid, worker in present.items() if known.get(uid) != worker):
                yield StreamEvent(
                    "worker", {**worker, "at": format_time(time.time())}, cursor
                ).event()
            known = present
            change = await listener.next(STREAM_BEAT)
            if change is Signal.CLOSED:
                return
            if change is Signal.QUIET:
                yield ": quiet\n\n"


def _present(store: Store) -> EventCursor:
    """The end of the log, as far as it is folded."""
    return EventCursor(*(store.cursor(name) for name in ("TASKS", "INBOX", "FEED", "ALERTS")))


async def _past(parts: Parts, me: Principal, cursor: EventCursor) -> list[StreamEvent]:
    """The events past `cursor`, at most a page of each kind."""

    def find(store: Store) -> list[StreamEvent]:
        return list(_of_log(store, cursor, me.uid, parts.tasks.blocker))

    found = await parts.database.read(find)
    behind = found[-1].cursor if found else cursor
    return found + await _alerts(parts, behind)


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
