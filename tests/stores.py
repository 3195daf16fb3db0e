"""A database in memory with all tables, for tests of rules and queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from postroom.store.migrate import create
from postroom.store.session import Driver, Session
from postroom.store.sqlite import DIALECT, SQLitePlace
from postroom.store.store import Store


def memory_store() -> Store:
    """An empty one."""
    place = SQLitePlace(None)
    place.alter("", lambda connection: create(connection, place.parts[""]))
    return Store(place.connect(writes=True).session)


def plans(store: Store, ask: Callable[[Store], object]) -> list[str]:
    """The lines of SQLite's plan for each statement that `ask` runs on a store."""
    driver = _Recording(store.session.driver)
    ask(Store(Session(DIALECT, driver)))
    return [
        row[3]
        for sql, values in driver.asked
        for row in store.session.driver.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
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
