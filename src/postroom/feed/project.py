"""The posts of a project and what happens beside them: who joins, takes a task, asks, ends, fails.

Nothing is written for it: it is read from the rows of tasks, approvals, alerts and agents. The cursor has a number for
each source, so a reader that comes back misses nothing and gets nothing twice.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any

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
from postroom.projection.changes import (
    ALERTS,
    APPROVALS,
    TASKS,
    WORKERS,
    Change,
    Changes,
    of_project,
)
from postroom.projection.tail import TailPage
from postroom.protocol import answers, shapes
from postroom.protocol.approvals import POLICY
from postroom.protocol.events import event_id
from postroom.protocol.limits import MAX_DETAIL
from postroom.store.activity import RequestRow
from postroom.store.agents import Party
from postroom.store.database import Database, Store
from postroom.store.ports import TaskEventRow
from postroom.tasks import views as task_views
from postroom_a2a.task_state import INTERRUPTED, TaskState
from postroom_a2a.text import one_line
from postroom_a2a.times import format_time

ROUNDS = 8
"""Pages of each source that one answer may take: what a template decides is read, and not shown."""


@dataclass(frozen=True, slots=True)
class ProjectCursor(FeedCursor):
    """The position of a reader: a number in each source. Forwards it reads past them, backwards what is below."""

    posts: int = 0
    tasks: int = 0
    requests: int = 0
    failures: int = 0
    members: int = 0


_END = ProjectCursor(*[10**18 - 1] * 5)
"""Behind everything."""


async def newest(
    database: Database, project: str, limit: int, before: ProjectCursor | None = None
) -> answers.ProjectEvents:
    """The newest posts and happenings of a project, or those `before`, and where what comes then begins."""

    def find(store: Store) -> tuple[list[Happening], ProjectCursor, ProjectCursor | None]:
        behind = _present(store, project)
        end = before
        if end is None:
            # What comes while the reader pages back is not older.
            _, behind = told(_by_time(_sources(store, project, None, 1)), behind)
            end = ProjectCursor(*(number + 1 for number in astuple(behind)))
        found, older = _older(store, project, end, limit)
        return found, behind, older

    found, cursor, older = await database.read(find)
    shown: list[Any] = [{"post": None, "activity": None, one.kind: one.record} for one in found]
    return {"events": shown, "after": str(cursor), "next": str(older) if older else None}


def _older(
    store: Store, project: str, end: ProjectCursor, limit: int
) -> tuple[list[Happening], ProjectCursor | None]:
    """The newest `limit` below `end`, and the end of those before them, None if there are none."""
    shown: list[Happening] = []
    older: ProjectCursor | None = end
    for _ in range(ROUNDS):
        if older is None or len(shown) == limit:
            break
        found, older = _page(store, project, older, limit - len(shown))
        shown = found + shown
    return shown, older


def _page(
    store: Store, project: str, end: ProjectCursor, limit: int
) -> tuple[list[Happening], ProjectCursor | None]:
    """At most `limit` below `end`, and the end of what is before them."""
    pages = [list(_in_order(found)) for found in _sources(store, project, None, limit, end)]
    full = [page[0].at for page in pages if len(page) >= limit]
    # Before the oldest of a full page that source may have more, which has to come in between.
    since = max(full, default=-math.inf)
    passed = [one for one in heapq.merge(*pages, key=lambda one: one.at) if one.at >= since]
    kept: list[Happening] = []
    while passed and len(kept) < limit:
        one = passed.pop()
        end = replace(end, **{one.source: min(one.number, getattr(end, one.source))})
        if one.record is not None:
            kept.append(one)
    more = bool(full) or bool(passed)
    return kept[::-1], end if more else None


class ProjectFeed(FeedSource[ProjectCursor | None]):
    """Events `post` and `activity` past a cursor, from now on for None. The first is `open`."""

    limit = 1  # the next read shows everything

    def __init__(self, changes: Changes, database: Database, project: str) -> None:
        super().__init__(changes, of_project(project), TASKS, APPROVALS, ALERTS, WORKERS)
        self._database = database
        self._project = project
        self._members: frozenset[str] = frozenset()

    def concerns(self, change: Change) -> bool:
        # What others do wakes nobody, as far as the members are known.
        match change.kind:
            case "task":
                return change.recipient in self._members
            case "event":
                return change.sender in self._members
        return True

    async def open(self, after: ProjectCursor | None) -> FeedPage[ProjectCursor | None]:
        cursor = after or await self._database.read(partial(_present, project=self._project))
        return TailPage([FeedEvent("open", {}, str(cursor))], cursor, more=True)

    async def read(self, after: ProjectCursor | None) -> FeedPage[ProjectCursor | None]:
        cursor = after or ProjectCursor()

        def find(store: Store) -> tuple[list[str], list[list[Happening]]]:
            pages = _sources(store, self._project, cursor, PAGE)
            return store.activity.members(self._project), pages

        members, pages = await self._database.read(find)
        self._members = frozenset(members)
        return TailPage(*told(_by_time(pages), cursor), more=any(map(is_full, pages)))


def _present(store: Store, project: str) -> ProjectCursor:
    """The end of each source, as far as it is folded."""
    posts, tasks, events, alerts = (
        store.cursor(name) for name in ("FEED", "TASKS", "EVENTS", "ALERTS")
    )
    last = store.activity.came_or_went(store.activity.members(project), None, 1)
    came = last[-1].number if last else 0
    return ProjectCursor(posts, tasks, event_id(events + 1, 0) - 1, alerts, came)


def _sources(
    store: Store, project: str, cursor: ProjectCursor | None, limit: int, end: ProjectCursor = _END
) -> list[list[Happening]]:
    """What each source has past `cursor`, or the newest for None, and below `end`; at most `limit` of each."""
    of = store.activity.members(project)
    found = [_posts(store, project, cursor, limit, end.posts)]
    for source, read in _READ.items():
        after = getattr(cursor, source) if cursor else None
        found.append(read(store, of, after, limit, getattr(end, source)))
    return found


def _by_time(pages: Iterable[Sequence[Happening]]) -> Iterator[Happening]:
    """All of them by time; each source stays in its own order."""
    return heapq.merge(*map(_in_order, pages), key=lambda one: one.at)


def _in_order(found: Sequence[Happening]) -> Iterator[Happening]:
    """Numbers and times may differ a little in their order; the numbers count, since they are the cursor."""
    times = accumulate((one.at for one in found), max)
    return (replace(one, at=at) for one, at in zip(found, times, strict=True))


def _posts(
    store: Store, project: str, cursor: ProjectCursor | None, limit: int, before: int
) -> list[Happening]:
    after = 0 if cursor is None else cursor.posts or -1  # 0 would be the newest
    rows = store.records.project_posts(project, limit=limit, after=after, before=before)
    return [
        Happening("posts", row.seq, "post", post.as_json(), row.at)
        for row, post in zip(rows, mail_views.posts(store, rows), strict=True)
    ]


def _members(
    store: Store, of: Sequence[str], after: int | None, limit: int, before: int
) -> list[Happening]:
    return [
        _happening(
            one.number / 1_000_000,
            "members",
            one.number,
            "joined" if one.joined else "left",
            Party(one.uid, one.nick, one.kind),
        )
        for one in store.activity.came_or_went(of, after, limit, before)
    ]


def _failures(
    store: Store, of: Sequence[str], after: int | None, limit: int, before: int
) -> list[Happening]:
    rows = store.activity.failures(of, after, limit, before)
    known = store.agents.parties(row.who for row in rows)
    return [
        _happening(row.at, "failures", row.number, "failed", known[row.who], text=row.text)
        for row in rows
    ]


def _tasks(
    store: Store, of: Sequence[str], after: int | None, limit: int, before: int
) -> list[Happening]:
    rows = store.tasks.milestones(of, after, limit, before)
    heads = {head.id: head for head in store.tasks.heads_by_ids({row.task for row in rows})}
    known = store.agents.parties(uid for h in heads.values() for uid in (h.worker, h.requester))
    found = []
    for row in rows:
        head = heads.get(row.task)
        if head is None:
            found.append(Happening("tasks", row.seq, at=row.at))
            continue
        what = _what(row)
        text = head.text if what == "took" else task_views.event(row, head).text
        found.append(
            _happening(
                row.at,
                "tasks",
                row.seq,
                what,
                known[head.worker],
                by=known[head.requester],
                task=row.task,
                state=row.state,
                text=text,
            )
        )
    return found


def _what(row: TaskEventRow) -> str:
    if row.state == TaskState.WORKING:
        return "took"
    return "asks" if row.state in INTERRUPTED else "ended"


def _requests(
    store: Store, of: Sequence[str], after: int | None, limit: int, before: int
) -> list[Happening]:
    rows = store.activity.requests(of, after, limit, before)
    said = [(json.loads(row.asked), json.loads(row.answered or "{}")) for row in rows]
    people = {row.worker for row in rows} | {_uid(answer) for _, answer in said}
    known = store.agents.parties(people - {""})
    found = []
    for row, (asked, answer) in zip(rows, said, strict=True):
        if answer.get("channel") == POLICY or (asked.get("kind") == "question" and row.task):
            # Its template decides, or the task asks the same.
            found.append(Happening("requests", row.number, at=row.at))
            continue
        found.append(_request(row, asked, answer, known))
    return found


def _request(
    row: RequestRow, asked: Mapping[str, Any], answer: Mapping[str, Any], known: Mapping[str, Party]
) -> Happening:
    decided = row.settles
    about = str(asked.get("title") or "") or str(asked.get("tool") or "")
    return _happening(
        row.at,
        "requests",
        row.number,
        "decided" if decided else "approval",
        known[row.worker],
        by=known.get(_uid(answer)) if decided else None,
        task=row.task or None,
        approval=row.request,
        state=str(answer.get("decision") or "") if decided else "pending",
        text=str(answer.get("reason") or "") or about if decided else about,
    )


def _uid(answer: Mapping[str, Any]) -> str:
    by = answer.get("by")
    uid = by.get("uid") if isinstance(by, dict) else None
    return uid if isinstance(uid, str) else ""


def _happening(
    at: float,
    source: str,
    number: int,
    what: str,
    worker: Party,
    *,
    by: Party | None = None,
    task: str | None = None,
    approval: str | None = None,
    state: str = "",
    text: str = "",
) -> Happening:
    record: shapes.Activity = {
        "at": format_time(at),
        "what": what,
        "worker": worker.as_json(),
        "by": by.as_json() if by else None,
        "task": task,
        "approval": approval,
        "state": state,
        "text": one_line(text, MAX_DETAIL),
    }
    return Happening(source, number, "activity", record, at)


Reader = Callable[[Store, Sequence[str], int | None, int, int], list[Happening]]

_READ: dict[str, Reader] = {
    "tasks": _tasks,
    "requests": _requests,
    "failures": _failures,
    "members": _members,
}
"""What reads each source but the posts: those among the agents past a number, or the newest for None, below another."""
