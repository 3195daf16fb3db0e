"""Rows of the port as records of SurrealDB."""

from __future__ import annotations

from typing import Any

from postroom.store.ports import TaskEventRow, TaskRow
from postroom.store.session import REPLACEMENT, values_of
from postroom.store.surreal.ranges import Row
from postroom.store.surreal.schema import event_keys, task_keys


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
