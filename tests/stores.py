"""A database in memory with all tables, for tests of rules and queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from postroom.store.database import Store
from postroom.store.migrate import create
from postroom.store.ports import Tasks
from postroom.store.session import Driver, Session
from postroom.store.sqlite import SQLitePlace
from postroom.store.surreal.tasks import SurrealTasks


def memory_store() -> Store:
    """An empty one."""
    place = SQLitePlace(None)
    place.alter("", lambda connection: create(connection, place, ""))
    return Store(place.connect(writes=True).session)


def scans(store: Store, ask: Callable[[Store], object]) -> list[str]:
    """What the statements that `ask` runs on a store read from end to end, as the database plans it."""
    dialect, driver = store.session.dialect, store.session.driver
    listening = _Recording(driver)
    elsewhere = store.tasks if isinstance(store.tasks, SurrealTasks) else None
    watched = Store(Session(dialect, listening), elsewhere, store.task_tables)
    found = _surreal_scans(store.tasks, lambda: ask(watched))
    assert listening.asked or isinstance(store.tasks, SurrealTasks)
    if dialect.name == "sqlite":
        explain, sign, column = "EXPLAIN QUERY PLAN", "SCAN", 3
    else:
        explain, sign, column = "EXPLAIN", "Seq Scan", 0
        driver.execute("SET enable_seqscan TO off")  # for so few rows it would read them all
    lines = [
        row[column]
        for sql, values in listening.asked
        for row in driver.execute(f"{explain} {sql}", values).fetchall()
    ]
    none = ("json_each", "subquery", "anon")
    return found + [
        line for line in lines if sign in line and not any(word in line for word in none)
    ]


def _surreal_scans(tasks: Tasks, ask: Callable[[], object]) -> list[str]:
    if not isinstance(tasks, SurrealTasks):
        ask()
        return []
    connection = tasks.session.source.connection()
    asked: list[tuple[str, Any]] = []
    rows = connection.rows

    def recorded(text: str, values: Any = None) -> list[Any]:
        asked.append((text, values))
        return rows(text, values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "rows", recorded)
        ask()
    return [
        text
        for text, values in asked
        for step in rows(f"{text} EXPLAIN", values)
        if step["operation"].startswith("Iterate Table")
    ]


class _Recording:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.asked: list[tuple[str, Sequence[Any]]] = []

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Any:
        self.asked.append((sql, values))
        return self._driver.execute(sql, values)

    def executemany(self, sql: str, values: Sequence[Sequence[Any]], /) -> Any:
        return self._driver.executemany(sql, values)

    def close(self) -> None:
        self._driver.close()
