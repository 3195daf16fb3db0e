"""The port of tasks (`store.ports.Tasks`) on SurrealDB.

Lists are ranges of a key (`surreal.schema`). What the running transaction has changed is laid over what the database
gives, so that it reads what it has written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from postroom.protocol.limits import MAX_PAGE, MAX_SHOWN_TEXT
from postroom.store.messages import page
from postroom.store.ports import MAX_RETRIES, Ended, TaskEventRow, TaskHead, TaskRow, Tasks
from postroom.store.surreal.schema import (
    END,
    Only,
    Range,
    changed_key,
    place,
    within,
)
from postroom.store.surreal.session import ALL, SurrealSession
from postroom.store.surreal.tables import clean, event_row, storable, task_row
from postroom.store.surreal.unit import Row
from postroom.store.tasks import BATCH, CHANGING, MAX_ASKING, composed
from postroom_a2a.task_state import INTERRUPTED, TaskState

_HEAD_FIELDS = [each.name for each in fields(TaskHead)]
_EVENT_FIELDS = [each.name for each in fields(TaskEventRow)]

_SHOWN = f"string::slice(text, 0, {MAX_SHOWN_TEXT}) AS text"
_ID = "record::id(id) AS id"
_HEAD = ", ".join({"id": _ID, "text": _SHOWN}.get(name, name) for name in _HEAD_FIELDS)
_WHOLE = f"*, {_ID}"
_EVENT = ", ".join(_EVENT_FIELDS)

_TAKEN = Only("seq > 0", lambda row: row["seq"] > 0)
_NOT_TAKEN = Only("seq = 0", lambda row: row["seq"] == 0)

_INTERRUPTED = sorted(state.value for state in INTERRUPTED)
_WAITING = (TaskState.SUBMITTED.value, TaskState.WORKING.value)


class SurrealTasks(Tasks):
    """Implements `store.ports.Tasks`.

    Attributes:
        session: the transaction that it is part of.
    """

    def __init__(self, session: SurrealSession) -> None:
        self.session = session
        self.cursors = session.cursors

    # ── writes ──────────────────────────────────────────────────────────────────────────────────────────

    def insert_task(self, row: TaskRow) -> bool:
        stored = task_row(storable(row))
        if self._find(row.id) is not None or self.session.is_requested(row.requested_seq):
            return False
        self.session.put_task(row.id, stored)
        return True

    def record_change(self, row: TaskRow, change: TaskEventRow) -> None:
        first = self._is_first(self._find(row.id), row, change)
        event = event_row(storable(change), clean(row.snapshot), first=first)
        self.session.put_event(change.seq, event)
        found = self._find(row.id)
        if found is None:
            return
        # A row is written anew at each change, so nothing large may lie in it.
        fresh = {"snapshot": ""} if row.snapshot else {}
        changes = {name: clean(getattr(row, name)) for name in CHANGING} | fresh
        self.session.put_task(row.id, task_row(_made(TaskRow, {**found, **changes})))

    def drop_snapshot(self, seq: int) -> None:
        self.session.drop_snapshot(seq)

    def _is_first(self, found: Row | None, row: TaskRow, change: TaskEventRow) -> bool:
        """Whether a change is the first of its task in its state; asks only where the task does not say so."""
        if found is not None and 0 < found["seq"] != change.seq:
            if found["state"] == change.state:
                return False
            if row.final:
                return True
        elif found is not None and not found["seq"]:
            return True
        known = self.session.first_events([f"{change.task}/{change.state}"])
        return not known or known[0]["seq"] == change.seq

    # ── single tasks ────────────────────────────────────────────────────────────────────────────────────

    def head_by_id(self, task: str) -> TaskHead | None:
        found = self._find(task)
        return None if found is None else _head(found)

    def task_by_id(self, task: str) -> TaskRow | None:
        return next(iter(self.tasks_by_ids([task])), None)

    def tasks_by_ids(self, ids: Collection[str]) -> list[TaskRow]:
        return [self._composed(row) for row in self._with_snapshots(self.session.tasks(ids))]

    def heads_by_ids(self, ids: Collection[str]) -> list[TaskHead]:
        return [_head(row) for row in self.session.tasks(ids)]

    def heads_by_requests(self, seqs: Collection[int]) -> list[TaskHead]:
        return self._requested(seqs)

    def tasks_by_prefix(self, prefix: str, limit: int = 2, party: str = "") -> list[TaskHead]:
        rows = self.session.tasks_between(prefix, f"{prefix}g", _HEAD, page(limit), party)
        return [_head(row) for row in rows]

    # ── lists ───────────────────────────────────────────────────────────────────────────────────────────

    def list_tasks(
        self,
        *,
        worker: str = "",
        requester: str = "",
        states: Collection[str] = (),
        open_only: bool | None = None,
        limit: int,
        before: int = 0,
        party: str = "",
        door: str = "",
    ) -> list[TaskHead]:
        among: dict[str, Collection[Any]] = {"state": states} if states else {}
        if door:
            among["door"] = [door]
        if open_only is not None:
            among["final"] = [not open_only]
        most = page(limit)
        if party:
            # Each is whole up to its last row, so both together are up to the last of the limit.
            found: dict[str, TaskHead] = {}
            for one in ("of_worker", "of_requester"):
                whose = {"of_worker": worker, "of_requester": requester}
                other = {"of_worker": ("requester", requester), "of_requester": ("worker", worker)}
                if whose[one] in ("", party):
                    name, uid = other[one]
                    more = {name: [uid]} if uid else {}
                    rows = self._heads(_newest(one, party, before, among | more), most)
                    found |= {row.id: row for row in rows}
            return sorted(found.values(), key=attrgetter("requested_seq"), reverse=True)[:most]
        if worker:
            among |= {"requester": [requester]} if requester else {}
            return self._heads(_newest("of_worker", worker, before, among), most)
        if requester:
            return self._heads(_newest("of_requester", requester, before, among), most)
        key = "open_newest" if open_only else "newest"
        return self._heads(Range(key, -before if before else -END, 1, among), most)

    def updated(
        self,
        *,
        worker: str = "",
        requester: str = "",
        context: str = "",
        state: str = "",
        since: float = 0.0,
        past: tuple[float, str] | None = None,
        limit: int,
    ) -> tuple[list[tuple[float, str]], int]:
        given = {"requester": requester if worker else "", "context_id": context, "state": state}
        among = {name: [value] for name, value in given.items() if value}
        key = "changed_of_worker" if worker else "changed_of_requester" if requester else "changed"
        whose = worker or requester
        before = f"{whose}/" if whose else ""
        high = f"{before}{changed_key(since, '')}g" if since else f"{before}g"
        whole = Range(key, before, high, among)
        total = self.session.count_tasks(whole)
        low = before if past is None else f"{before}{changed_key(*past)}"
        rows = self._heads(Range(key, low, high, among), page(limit))
        return [(row.updated_at, row.id) for row in rows], total

    def retries_of(self, task: str) -> list[TaskHead]:
        return self._heads(Range("retries", *within(task)), MAX_RETRIES)

    def requested_past(self, after: int, limit: int) -> list[TaskHead]:
        return self._heads(Range("requested_seq", after, END), page(limit))

    # ── open tasks ──────────────────────────────────────────────────────────────────────────────────────

    def open_tasks(
        self, worker: str, after: int = 0, limit: int = 500, *, taken: bool = True
    ) -> list[TaskHead]:
        return self._open_of(worker, after, page(limit), taken=taken)

    def queue(self, worker: str, limit: int = 500) -> list[tuple[int, str]]:
        found = self._open_of(worker, 0, limit, taken=True, states=_WAITING)
        return [(row.requested_seq, row.state) for row in found]

    def open_of(self, worker: str, after: int = 0) -> list[TaskRow]:
        rows = self.session.select_tasks(_open_range(worker, after, _TAKEN), _WHOLE, BATCH)
        return [self._composed(row) for row in self._with_snapshots(rows)]

    def untaken_tasks(self, after: int = 0) -> list[TaskRow]:
        rows = self.session.select_tasks(Range("untaken", after, END), _WHOLE, BATCH)
        return [_made(TaskRow, row) for row in rows]

    def counts(self) -> dict[str, int]:
        return self.session.count_open("worker")

    def states(self) -> dict[str, int]:
        return self.session.count_open("state")

    def current(self) -> dict[str, TaskHead]:
        found: dict[str, TaskHead] = {}
        waiting = sorted(self._in_states(_INTERRUPTED), key=attrgetter("requested_seq"))
        for task in (*self._in_states([TaskState.WORKING.value]), *waiting):
            found.setdefault(task.worker, task)
        return found

    def interrupted(self) -> list[TaskHead]:
        asking: dict[str, int] = {}
        found = []
        for task in sorted(self._in_states(_INTERRUPTED), key=attrgetter("requested_seq")):
            asking[task.worker] = asking.get(task.worker, 0) + 1
            if asking[task.worker] <= MAX_ASKING:
                found.append(task)
        return found[:MAX_PAGE]

    def silent(self, workers: Collection[str], before: float) -> list[TaskHead]:
        long_ago = Only("updated_at < $at", lambda row: row["updated_at"] < before, {"at": before})
        found: list[TaskHead] = []
        for worker in workers:
            wanted = _open_range(worker, 0, long_ago, {"state": _WAITING})
            found += self._heads(wanted, BATCH)
        return sorted(found, key=attrgetter("requested_seq"))[:BATCH]

    def begun(self, tasks: Collection[str]) -> dict[str, float]:
        wanted = [f"{task}/{TaskState.WORKING.value}" for task in tasks]
        return {row["task"]: row["at"] for row in self.session.first_events(wanted)}

    # ── changes ─────────────────────────────────────────────────────────────────────────────────────────

    def events_of(self, task: str, after: int = 0, limit: int = 100) -> list[TaskEventRow]:
        return self._events(Range("place", place(task, after), within(task)[1]), page(limit))

    def events_at(self, seqs: Collection[int]) -> list[TaskEventRow]:
        found = [_made(TaskEventRow, row) for row in self.session.events(seqs)]
        return sorted(found, key=attrgetter("seq"))

    def events_past(self, after: int, limit: int) -> list[TaskEventRow]:
        return self._events(Range("seq", after, END), page(limit))

    def milestones(
        self, workers: Collection[str], after: int | None, limit: int, before: int = END
    ) -> list[TaskEventRow]:
        among = {"worker": workers}
        if after is None:
            return self._events(Range("newest", -before, 1, among), page(limit))[::-1]
        return self._events(Range("milestone", after, END, among), page(limit))

    # ── what has ended ──────────────────────────────────────────────────────────────────────────────────

    def ended(self, after: int, limit: int, *, sized: bool = True) -> list[Ended]:
        wanted = Range("requested_seq", after, END, {"final": [True]})
        rows = self.session.select_tasks(wanted, f"{_HEAD}, size", limit)
        extra = self.session.event_sizes([row["id"] for row in rows]) if sized else {}
        return [
            Ended(
                row["requested_seq"],
                row["id"],
                (row["worker"],),
                row["created_at"],
                row["updated_at"],
                row["size"] + extra.get(row["id"], (0, 0))[1] if sized else 0,
            )
            for row in rows
        ]

    def progress(self, ids: Collection[str]) -> dict[str, tuple[int, int]]:
        return self.session.event_sizes(ids, progress=True)

    def sizes(self) -> dict[str, tuple[int, int]]:
        return self.session.sizes()

    def forget(self, ids: Collection[str]) -> None:
        self.session.forget(ids)

    def forget_progress(self, ids: Collection[str]) -> None:
        self.session.forget_progress(ids)

    # ── shapes ──────────────────────────────────────────────────────────────────────────────────────────

    def _find(self, task: str) -> Row | None:
        return next(iter(self.session.tasks([task])), None)

    def _requested(self, seqs: Collection[int]) -> list[TaskHead]:
        return [_head(row) for row in self.session.tasks_requested(seqs, _HEAD)]

    def _heads(self, wanted: Range, limit: int) -> list[TaskHead]:
        return [_head(row) for row in self.session.select_tasks(wanted, _HEAD, limit)]

    def _events(self, wanted: Range, limit: int) -> list[TaskEventRow]:
        rows = self.session.select_events(wanted, _EVENT, limit)
        return [_made(TaskEventRow, row) for row in rows]

    def _open_of(
        self, worker: str, after: int, limit: int, *, taken: bool, states: Collection[str] = ()
    ) -> list[TaskHead]:
        among = {"state": states} if states else {}
        only = _TAKEN if taken else _NOT_TAKEN
        return self._heads(_open_range(worker, after, only, among), limit)

    def _in_states(self, states: Iterable[str]) -> list[TaskHead]:
        found: list[TaskHead] = []
        for state in states:
            found += self._heads(Range("open_in", *within(state)), ALL)
        return found

    def _with_snapshots(self, rows: list[Row]) -> list[Row]:
        """With the snapshot of its last change that had one."""
        kept = self.session.snapshots([row["snapshot_seq"] for row in rows])
        return [
            {**row, "snapshot": kept.get(row["snapshot_seq"]) or row["snapshot"]} for row in rows
        ]

    def _composed(self, row: Row) -> TaskRow:
        task = _made(TaskRow, row)
        if task.snapshot_seq == task.seq:
            return task
        low, high = place(task.id, task.snapshot_seq), place(task.id, task.seq + 1)
        since = self._events(Range("place", low, high), ALL)
        return composed(task, [(each.event, each.answer) for each in since])


def _newest(key: str, uid: str, before: int, among: Mapping[str, Collection[Any]]) -> Range:
    low, high = within(uid)
    return Range(key, place(uid, END - before) if before else low, high, among)


def _open_range(
    worker: str, after: int, only: Only, among: Mapping[str, Collection[Any]] | None = None
) -> Range:
    return Range("open_of", place(worker, after), within(worker)[1], among or {}, only)


def _made(kind: Any, row: Row) -> Any:
    return kind(**{each.name: row[each.name] for each in fields(kind)})


def _head(row: Row) -> TaskHead:
    made = {name: row[name] for name in _HEAD_FIELDS}
    return TaskHead(**{**made, "text": made["text"][:MAX_SHOWN_TEXT]})
