"""A transaction over the tasks in SurrealDB: what it reads, with its own changes laid over it.

Readers of this process wait for a commit of the writer, and it for them, from their first question about tasks on: so
what they read in one transaction is of one moment. A view that takes long (a backup) waits for nobody: its rows may be
newer than its cursors, and folding those records again changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from postroom.store.ports import Cursor
from postroom.store.surreal.schema import CURSORS, EVENTS, TASKS, Range, Row, within
from postroom.store.surreal.unit import Unit
from postroom_a2a.surreal import Connection

ALL = 2**31
"""A limit above every number of rows; a larger one SurrealDB refuses."""

CHUNK = 500
"""Records that one request names."""


class Gate:
    """Many may read, or one may commit; who waits to commit comes before further readers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._writing = False
        self._waiting = 0

    def enter(self) -> None:
        """Begin to read."""
        with self._changed:
            while self._writing or self._waiting:
                self._changed.wait()
            self._readers += 1

    def leave(self) -> None:
        """End to read."""
        with self._changed:
            self._readers -= 1
            self._changed.notify_all()

    @contextmanager
    def alone(self) -> Generator[None]:
        """Commit: nobody reads meanwhile."""
        with self._changed:
            self._waiting += 1
            while self._writing or self._readers:
                self._changed.wait()
            self._waiting -= 1
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()


class Source(Protocol):
    """The database of the organisation."""

    gate: Gate
    writer: str

    def connection(self) -> Connection:
        """The open connection of the calling session."""

    def claim(self) -> None:
        """Make the tables, and be the one who writes from now on."""


class SurrealCursors(Cursor):
    """Implements `store.ports.Cursor`."""

    def __init__(self, session: SurrealSession) -> None:
        self._session = session

    def get(self, stream: str) -> int:
        return self._session.cursor(stream)

    def set(self, stream: str, seq: int) -> None:
        self._session.set_cursor(stream, seq)


class SurrealSession:
    """What one connection of the organisation's database does to the tasks.

    Args:
        alone: each change is a transaction of its own, for tests of single questions.
    """

    def __init__(self, source: Source, *, writes: bool, alone: bool = False) -> None:
        self.source = source
        self.writes = writes
        self.cursors = SurrealCursors(self)
        self._alone = alone
        self._unit = Unit()
        self._reads = self._gated = False

    # ── transactions ────────────────────────────────────────────────────────────────────────────────────

    def begin(self, *, reads: bool) -> None:
        """Begin a transaction; with `reads` its questions are answered as of one moment."""
        self._unit.begin()
        self._reads = reads

    def commit(self) -> None:
        """Store what was made and changed; SQL commits next."""
        if not self._unit.empty:
            self._unit.commit(self._ask(), self.source.writer)

    def settle(self) -> None:
        """SQL has committed: give up what is to go."""
        self._unit.settle(self._ask, self.source.writer)

    def end(self) -> None:
        """End the transaction, whatever came of it."""
        if self._gated:
            self._gated = False
            self.source.gate.leave()

    @property
    def changed(self) -> bool:
        """Whether the transaction has changed anything."""
        return not self._unit.empty

    def _ask(self) -> Connection:
        if self._reads and not self._gated:
            self.source.gate.enter()
            self._gated = True
        return self.source.connection()

    def _done(self) -> None:
        if self._alone:
            self.commit()
            self.settle()
            self._unit.begin()

    # ── changes ─────────────────────────────────────────────────────────────────────────────────────────

    def put_task(self, task: str, row: Row) -> None:
        """Store a task as a whole; it was looked for in this transaction."""
        self._unit.tasks[task] = row
        self._done()

    def put_event(self, seq: int, row: Row) -> None:
        """Store a change of a task."""
        self._unit.events[seq] = row
        self._done()

    def drop_snapshot(self, seq: int) -> None:
        """Empty the snapshot of a change."""
        if seq in self._unit.events:
            self._unit.events[seq] |= {"snapshot": "", "kept": 0}
        else:
            self._unit.dropped.add(seq)
        self._done()

    def forget(self, tasks: Collection[str]) -> None:
        """Delete tasks and their changes, once SQL has committed."""
        self._unit.forgotten += tasks
        self._done()

    def forget_progress(self, tasks: Collection[str]) -> None:
        """Delete all their changes but the first in each state, once SQL has committed."""
        self._unit.progress += tasks
        self._done()

    def cursor(self, stream: str) -> int:
        """How far `stream` is folded."""
        unit = self._unit
        if stream in unit.cursors:
            return unit.cursors[stream]
        if stream not in unit.cursors_seen:
            if stream in unit.doubt.cursors:
                seen = unit.doubt.cursors[stream]
            else:
                found = self._ask().rows(
                    "SELECT VALUE seq FROM $of", {"of": record(CURSORS, stream)}
                )
                seen = found[0] if found else 0
            unit.cursors_seen[stream] = seen
        return unit.cursors_seen[stream]

    def set_cursor(self, stream: str, seq: int) -> None:
        """Say so."""
        self.cursor(stream)
        self._unit.cursors[stream] = seq
        self._done()

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────────

    def tasks(self, ids: Collection[str]) -> list[Row]:
        """The tasks with those ids."""
        unit, found = self._unit, {}
        for task in dict.fromkeys(ids):
            if task in unit.tasks:
                found[task] = unit.tasks[task]
            elif task in unit.seen:
                found[task] = unit.seen[task]
            elif task in unit.doubt.tasks:
                found[task] = unit.seen[task] = unit.doubt.tasks[task]
        wanted = [task for task in dict.fromkeys(ids) if task not in found]
        stored = self._records(TASKS, wanted, "*, record::id(id) AS id")
        if self.writes:
            unit.seen.update(dict.fromkeys(wanted))
            unit.seen.update({row["id"]: row for row in stored})
        return [row for row in (*found.values(), *stored) if row is not None]

    def tasks_requested(self, seqs: Collection[int], columns: str) -> list[Row]:
        """The tasks requested at those sequences of INBOX."""
        text = f"SELECT {columns} FROM {TASKS} WHERE requested_seq IN $seqs"
        rows = [row for part in _chunks(seqs) for row in self._ask().rows(text, {"seqs": part})]
        return self._laid_over(rows, lambda row: row["requested_seq"] in seqs)

    def is_requested(self, seq: int) -> bool:
        """Whether there is a task requested at that sequence. Past the cursor none is stored."""
        if 0 < self.cursor("INBOX") < seq:
            return any(row and row["requested_seq"] == seq for row in self._unit.tasks.values())
        text = f"SELECT requested_seq, record::id(id) AS id FROM {TASKS} WHERE requested_seq = $seq"
        rows = self._ask().rows(text, {"seq": seq})
        return bool(self._laid_over(rows, lambda row: row["requested_seq"] == seq))

    def tasks_between(self, low: str, high: str, columns: str, limit: int, party: str) -> list[Row]:
        """The first tasks with ids from `low` to below `high`."""
        whose = "WHERE worker = $party OR requester = $party " if party else ""
        most = limit + len(self._unit.overlay())
        text = f"SELECT {columns} FROM $among {whose}LIMIT {most}"
        rows = self._ask().rows(text, {"among": records_between(low, high), "party": party})

        def holds(row: Row) -> bool:
            return low <= row["id"] < high and party in ("", row["worker"], row["requester"])

        return sorted(self._laid_over(rows, holds), key=lambda row: row["id"])[:limit]

    def select_tasks(self, wanted: Range, columns: str, limit: int) -> list[Row]:
        """The first tasks of a range."""
        rows = self._select(wanted, TASKS, columns, limit + len(self._unit.overlay()))
        if not self._unit.overlay():
            return rows
        found = self._laid_over(rows, wanted.holds)
        return sorted(found, key=lambda row: row[wanted.key])[:limit]

    def count_tasks(self, wanted: Range) -> int:
        """The number of tasks in a range."""
        if self._unit.overlay():
            return len(self.select_tasks(wanted, "*, record::id(id) AS id", ALL))
        text = f"SELECT count() FROM {wanted.where(TASKS)} GROUP ALL"
        found = self._ask().rows(text, wanted.values())
        return found[0]["count"] if found else 0

    def count_open(self, by: str) -> dict[str, int]:
        """The number of open tasks by a column."""
        everything = Range("open_of", "", "~")
        text = f"SELECT {by}, count() FROM {everything.where(TASKS)} GROUP BY {by}"
        found = self._ask().rows(text, everything.values())
        counted = {row[by]: row["count"] for row in found}
        stored = self._records(TASKS, list(self._unit.overlay()), f"{by}, final")
        for sign, rows in ((-1, stored), (1, self._unit.overlay().values())):
            for row in rows:
                if row is not None and not row["final"]:
                    counted[row[by]] = counted.get(row[by], 0) + sign
        return {name: number for name, number in counted.items() if number}

    def _laid_over(self, rows: list[Row], holds: Any) -> list[Row]:
        over = self._unit.overlay()
        if not over:
            return rows
        return [row for row in rows if row["id"] not in over] + [
            row for row in over.values() if row is not None and holds(row)
        ]

    # ── changes of tasks ────────────────────────────────────────────────────────────────────────────────

    def events(self, seqs: Collection[int]) -> list[Row]:
        """The changes at those sequences."""
        own = self._unit.events
        found = [own[seq] for seq in seqs if seq in own]
        wanted = [seq for seq in seqs if seq not in own and seq not in self._unit.doubt.events]
        return found + self._records(EVENTS, wanted, "*")

    def select_events(self, wanted: Range, columns: str, limit: int) -> list[Row]:
        """The first changes of a range."""
        own, hidden = self._unit.events, self._unit.doubt.events
        rows = self._select(wanted, EVENTS, columns, limit + len(own) + len(hidden))
        if not own and not hidden:
            return rows
        stored = [row for row in rows if row["seq"] not in own and row["seq"] not in hidden]
        found = stored + [row for row in own.values() if wanted.holds(row)]
        return sorted(found, key=lambda row: row[wanted.key])[:limit]

    def first_events(self, keys: Sequence[str]) -> list[Row]:
        """The changes with those keys of `first_of`, with `task` and `at`."""
        text = f"SELECT seq, task, at FROM {EVENTS} WITH INDEX {EVENTS}_first_of WHERE first_of IN $keys"
        own, hidden = self._unit.events, self._unit.doubt.events
        rows = [row for part in _chunks(keys) for row in self._ask().rows(text, {"keys": part})]
        rows = [row for row in rows if row["seq"] not in hidden]
        return rows + [row for row in own.values() if row["first_of"] in keys]

    def snapshots(self, seqs: Collection[int]) -> dict[int, str]:
        """The snapshots of the changes at those sequences that have one."""
        own = self._unit.events
        found = self._records(
            EVENTS, [seq for seq in seqs if seq and seq not in own], "seq, snapshot"
        )
        kept = {row["seq"]: row["snapshot"] for row in found}
        return kept | {seq: own[seq]["snapshot"] for seq in seqs if seq in own}

    def event_sizes(
        self, tasks: Collection[str], *, progress: bool = False
    ) -> dict[str, tuple[int, int]]:
        """For each task the number and the bytes of its changes, or of those that are mere progress."""
        found = {}
        only = " AND first_of = NONE" if progress else ""
        text = (
            f"SELECT count() AS number, math::sum(size) AS size, math::sum(kept) AS kept FROM {EVENTS}"
            f" WITH INDEX {EVENTS}_place WHERE place > $low AND place < $high{only} GROUP ALL"
        )
        for task in tasks:
            low, high = within(task)
            for row in self._ask().rows(text, {"low": low, "high": high}):
                found[task] = (row["number"], row["size"] + row["kept"])
        return found

    def sizes(self) -> dict[str, tuple[int, int]]:
        """For each worker the bytes of its tasks' rows, and of their changes."""
        found: dict[str, tuple[int, int]] = {}
        tasks = f"SELECT worker, math::sum(size) AS size FROM {TASKS} GROUP BY worker"
        for row in self._ask().rows(tasks):
            found[row["worker"]] = (row["size"], 0)
        events = (
            f"SELECT worker, math::sum(size) AS size, math::sum(kept) AS kept FROM {EVENTS}"
            " GROUP BY worker"
        )
        for row in self._ask().rows(events):
            found[row["worker"]] = (found.get(row["worker"], (0, 0))[0], row["size"] + row["kept"])
        return found

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────

    def _select(self, wanted: Range, table: str, columns: str, limit: int) -> list[Row]:
        # The key is in the columns, since SurrealDB sorts by nothing else.
        key = (
            ""
            if columns.startswith("*") or wanted.key in columns.split(", ")
            else f", {wanted.key}"
        )
        text = (
            f"SELECT {columns}{key} FROM {wanted.where(table)} ORDER BY {wanted.key} LIMIT {limit}"
        )
        return self._ask().rows(text, wanted.values())

    def _records(self, table: str, ids: Sequence[Any], columns: str) -> list[Row]:
        text = f"SELECT {columns} FROM $records"
        return [
            row
            for part in _chunks(ids)
            for row in self._ask().rows(text, {"records": [record(table, each) for each in part]})
        ]


def record(table: str, name: Any) -> Any:
    """The id of a record."""
    from surrealdb import RecordID

    return RecordID(table, name)


def records_between(low: str, high: str, *, past: bool = False) -> Any:
    """The tasks with ids from `low`, or past it, to below `high`, in their order."""
    from surrealdb import Range as Bounds
    from surrealdb import RecordID
    from surrealdb.data.types.range import BoundExcluded, BoundIncluded

    first = BoundExcluded(low) if past else BoundIncluded(low)
    return RecordID(TASKS, Bounds(first, BoundExcluded(high)))


def _chunks(ids: Iterable[Any]) -> Iterator[list[Any]]:
    left = list(ids)
    for at in range(0, len(left), CHUNK):
        yield left[at : at + CHUNK]
