"""All rows of tasks at once, as a snapshot, a backup and `rebuild` read and write them.

They go past the transaction in SQL, since no transaction of SurrealDB holds that many. So the cursors go first and
come last: after a crash between, they say that nothing is folded, and the next start loads the last snapshot again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from postroom.store.ports import TaskEventRow, TaskRow
from postroom.store.session import REPLACEMENT, values_of
from postroom.store.surreal.schema import (
    CURSORS,
    END,
    EVENTS,
    META,
    TASKS,
    Range,
    Row,
    event_keys,
    task_keys,
)
from postroom.store.surreal.session import Source, record, records_between

PAGE = 500

_LAST = "\U0010ffff"


def task_row(row: TaskRow) -> Row:
    """A task as it is stored."""
    size = octets(row.text) + octets(row.snapshot)
    return {**values_of(row), "size": size, **task_keys(row)}


def event_row(row: TaskEventRow, snapshot: str, *, first: bool) -> Row:
    """A change as it is stored; `first`: of its task in its state."""
    sizes = {"size": octets(row.event), "kept": octets(snapshot)}
    return {**values_of(row), "snapshot": snapshot, **sizes, **event_keys(row, first=first)}


def clean(value: Any) -> Any:
    """As the other databases keep it (`store.session`); SurrealDB's answers cannot have U+0000 either."""
    return value.replace("\0", REPLACEMENT) if value.__class__ is str else value


def storable(row: Any) -> Any:
    """A row with all its texts as they are kept."""
    return type(row)(**{name: clean(value) for name, value in values_of(row).items()})


def octets(text: str) -> int:
    """Bytes of a text."""
    return len(text) if text.isascii() else len(text.encode())


class SurrealTables:
    """Implements `store.tables.TaskTables`."""

    names = frozenset({TASKS, EVENTS})

    def __init__(self, source: Source) -> None:
        self._source = source
        self._states: set[str] = set()

    def cursors(self) -> dict[str, int]:
        """Stream to its sequence."""
        found = self._source.connection().rows(
            f"SELECT record::id(id) AS stream, seq FROM {CURSORS}"
        )
        return {row["stream"]: row["seq"] for row in found}

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[list[Any]]:
        """All rows of a table in the order of its key, each in the order of `columns`."""
        pages = self._tasks() if table == TASKS else self._events()
        for page in pages:
            for row in page:
                yield [row[name] for name in columns]

    def clear(self) -> None:
        """Delete all rows."""
        self._states.clear()
        connection = self._source.connection()
        connection.run(f"UPDATE {META}:state SET shape = ''")
        self._source.claim()

    def load(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows of a table of SQL, in the order of its key."""
        made = [self._task(row) if table == TASKS else self._event(row) for row in rows]
        self._source.connection().run(f"INSERT INTO {table} $rows RETURN NONE", {"rows": made})

    def set_cursors(self, cursors: Mapping[str, int]) -> None:
        """Store them."""
        for stream, seq in cursors.items():
            values = {"of": record(CURSORS, stream), "seq": seq}
            self._source.connection().run("UPSERT $of SET seq = $seq", values)

    def _task(self, row: Mapping[str, Any]) -> Row:
        return task_row(storable(TaskRow(**_known(TaskRow, row))))

    def _event(self, row: Mapping[str, Any]) -> Row:
        change = storable(TaskEventRow(**_known(TaskEventRow, row)))
        key = f"{change.task}/{change.state}"
        first = key not in self._states
        self._states.add(key)
        return {"id": change.seq, **event_row(change, str(row.get("snapshot", "")), first=first)}

    def _tasks(self) -> Iterator[list[Row]]:
        after = ""
        while True:
            page = self._source.connection().rows(
                f"SELECT *, record::id(id) AS id FROM $among LIMIT {PAGE}",
                {"among": records_between(after, _LAST, past=bool(after))},
            )
            yield page
            if len(page) < PAGE:
                return
            after = page[-1]["id"]

    def _events(self) -> Iterator[list[Row]]:
        after = 0
        while True:
            wanted = Range("seq", after, END)
            text = f"SELECT * FROM {wanted.where(EVENTS)} ORDER BY seq LIMIT {PAGE}"
            page = self._source.connection().rows(text, wanted.values())
            yield page
            if len(page) < PAGE:
                return
            after = page[-1]["seq"]


def _known(kind: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: row[each.name] for each in fields(kind) if each.name in row}
