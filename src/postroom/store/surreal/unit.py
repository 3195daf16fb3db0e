"""What one transaction changes in SurrealDB, kept here until it commits.

The embedded engine has no transaction over several requests, so all changes go in one request at the end. Until then
those who ask in the same transaction see them over what the database has.

A commit that fails may have been kept all the same, and so may one that succeeds before the transaction in SQL fails.
The fold then repeats its work, and who waits must hear of the same changes. So the next transaction sees the tasks as
they were before, and stores the same rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.errors import StoreLocked
from postroom.store.surreal.schema import CURSORS, EVENTS, META, TASKS, within
from postroom_a2a.surreal import Connection, Thrown

Row = dict[str, Any]

_TAKEN, _CHANGED = "another writer", "changed meanwhile"

_OWN = f"""
LET $is = (SELECT VALUE writer FROM {META}:state);
IF $is != [$writer] {{ THROW '{_TAKEN}' }};"""

_COMMIT = f"""BEGIN;{_OWN}
FOR $one IN $tasks {{
    LET $found = (SELECT VALUE seq FROM $one.record);
    IF array::len($found) = 0 {{
        IF !$one.new {{ THROW '{_CHANGED}' }};
        CREATE $one.record CONTENT $one.row RETURN NONE;
    }} ELSE {{
        IF $found[0] NOT IN $one.seqs {{ THROW '{_CHANGED}' }};
        UPDATE $one.record MERGE $one.row RETURN NONE;
    }}
}};
FOR $seq IN $dropped {{ UPDATE $seq SET snapshot = '', kept = 0 RETURN NONE }};
FOR $one IN $events {{ UPSERT $one.record CONTENT $one.row RETURN NONE }};
FOR $one IN $cursors {{ UPSERT $one.record SET seq = $one.seq RETURN NONE }};
COMMIT;"""

_FORGET = f"""BEGIN;{_OWN}
FOR $one IN $tasks {{
    DELETE $one.record RETURN NONE;
    DELETE {EVENTS} WHERE place > $one.low AND place < $one.high RETURN NONE;
}};
FOR $one IN $progress {{
    DELETE {EVENTS} WHERE place > $one.low AND place < $one.high AND first_of = NONE RETURN NONE;
}};
COMMIT;"""


@dataclass(slots=True)
class Before:
    """What the database may have beyond what a transaction saw: it is hidden from the next one.

    Attributes:
        tasks: id to the task as it was; None: it was not there.
        seqs: id to what `seq` of the stored task may be.
        events: sequences of changes that were not there.
        cursors: stream to its sequence.
    """

    tasks: dict[str, Row | None] = field(default_factory=dict)
    seqs: dict[str, set[int]] = field(default_factory=dict)
    events: set[int] = field(default_factory=set)
    cursors: dict[str, int] = field(default_factory=dict)

    def without(self, unit: Unit) -> Before:
        """What a transaction has not stored again."""
        return Before(
            {name: row for name, row in self.tasks.items() if name not in unit.tasks},
            {name: seqs for name, seqs in self.seqs.items() if name not in unit.tasks},
            self.events - unit.events.keys(),
            {name: seq for name, seq in self.cursors.items() if name not in unit.cursors},
        )


@dataclass(slots=True)
class Unit:
    """The changes of one transaction.

    Attributes:
        tasks: id to the whole task as it is in this transaction.
        events: sequence to the change.
        dropped: sequences of changes whose snapshot goes.
        seen: id to the task as this transaction found it, None: there was none.
        forgotten, progress: ids of tasks to delete, and of those that lose all changes but the first in each state.
            Both only after SQL has committed.
    """

    tasks: dict[str, Row] = field(default_factory=dict)
    events: dict[int, Row] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    cursors: dict[str, int] = field(default_factory=dict)
    seen: dict[str, Row | None] = field(default_factory=dict)
    cursors_seen: dict[str, int] = field(default_factory=dict)
    forgotten: list[str] = field(default_factory=list)
    progress: list[str] = field(default_factory=list)
    doubt: Before = field(default_factory=Before)

    @property
    def empty(self) -> bool:
        """Whether it has changed nothing that is stored before SQL commits."""
        return not (self.tasks or self.events or self.dropped or self.cursors)

    def begin(self) -> None:
        """Forget what a transaction before this has left; what is in doubt stays."""
        for rows in (self.tasks, self.events, self.cursors, self.seen, self.cursors_seen):
            rows.clear()
        self.dropped.clear()
        self.forgotten.clear()
        self.progress.clear()

    def overlay(self) -> dict[str, Row | None]:
        """The tasks that are not as the database has them; None: not there."""
        return {**self.doubt.tasks, **self.tasks}

    def commit(self, connection: Connection, writer: str) -> None:
        """Store what is made and changed, all of it or nothing.

        Raises:
            StoreLocked: another post room writes these tasks.
            Away: whether it was stored is not known.
        """
        if self.empty:
            return
        earlier = self.doubt
        # From here on nobody knows, until SQL has committed too.
        self.doubt = Before(
            {**{name: self.seen.get(name) for name in self.tasks}, **earlier.tasks},
            _joined(earlier.seqs, {name: row["seq"] for name, row in self.tasks.items()}),
            earlier.events | self.events.keys(),
            {**{name: self.cursors_seen.get(name, 0) for name in self.cursors}, **earlier.cursors},
        )
        _run(connection, _COMMIT, self._values(writer, earlier))

    def settle(self, connection: Callable[[], Connection], writer: str) -> None:
        """SQL has committed: delete what is given up. What was stored is not in doubt any more.

        Raises:
            As `commit`; what is left is given up by the next run.
        """
        if not self.empty:
            self.doubt = self.doubt.without(self)
        if self.forgotten or self.progress:
            values = {"tasks": _ranges(self.forgotten), "progress": _ranges(self.progress)}
            _run(connection(), _FORGET, {"writer": writer, **values})

    def _values(self, writer: str, doubt: Before) -> dict[str, Any]:
        from surrealdb import RecordID

        return {
            "writer": writer,
            "tasks": [
                {
                    "record": RecordID(TASKS, name),
                    "row": self._changed(name, row, doubt),
                    "new": self.seen.get(name) is None,
                    "seqs": self._expected(name, doubt),
                }
                for name, row in self.tasks.items()
            ],
            "dropped": [RecordID(EVENTS, seq) for seq in sorted(self.dropped - self.events.keys())],
            "events": [
                {"record": RecordID(EVENTS, seq), "row": row} for seq, row in self.events.items()
            ],
            "cursors": [
                {"record": RecordID(CURSORS, name), "seq": seq}
                for name, seq in self.cursors.items()
            ],
        }

    def _expected(self, name: str, doubt: Before) -> list[int]:
        """What `seq` of the stored task may be: the one that was seen, or what a commit in doubt has left."""
        seen = self.seen.get(name)
        return [*([] if seen is None else [seen["seq"]]), *doubt.seqs.get(name, ())]

    def _changed(self, name: str, row: Row, doubt: Before) -> Row:
        """What is to be written of a task: all of it where it is new, or perhaps not as it was seen."""
        seen = self.seen.get(name)
        if seen is None or name in doubt.tasks:
            return {key: value for key, value in row.items() if key != "id"}
        return {key: value for key, value in row.items() if seen.get(key) != value}


def _joined(earlier: Mapping[str, set[int]], now: Mapping[str, int]) -> dict[str, set[int]]:
    found = {name: set(seqs) for name, seqs in earlier.items()}
    for name, seq in now.items():
        found.setdefault(name, set()).add(seq)
    return found


def _ranges(tasks: Collection[str]) -> list[Row]:
    from surrealdb import RecordID

    found = []
    for name in tasks:
        low, high = within(name)
        found.append({"record": RecordID(TASKS, name), "low": low, "high": high})
    return found


def _run(connection: Connection, text: str, values: Mapping[str, Any]) -> None:
    try:
        connection.run(text, values)
    except Thrown as error:
        if str(error) == _TAKEN:
            raise StoreLocked(
                f"another post room writes the tasks in {connection.shown}",
                remedy="stop it, or give each post room a database of its own",
            ) from None
        raise RuntimeError(f"a task in {connection.shown} has {error}") from None  # a bug
