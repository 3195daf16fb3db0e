"""The databases that the tests of the store run on."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from postroom.store.database import Place
from postroom.store.migrate import create
from postroom.store.moving import TABLES
from postroom.store.postgres.address import Address
from postroom.store.postgres.place import PostgresPlace
from postroom.store.sqlite import SQLitePlace
from postroom.store.store import Store
from tests.postgres import PostgresServer
from tests.stores import memory_store

KINDS = ("file", "memory", "postgres")


class EmptiedPostgres:
    """One database with all tables, for tests that leave rows behind and nothing else."""

    def __init__(self, server: PostgresServer) -> None:
        self.place = PostgresPlace(Address.parse(server.new_database()), "default")
        make_tables(self.place)

    def emptied(self) -> PostgresPlace:
        """It, with no row in it."""
        names = [table.name for table in reversed(TABLES)]
        self.place.alter(
            "projection",
            lambda c: c.exec_driver_sql("; ".join(f"DELETE FROM {name}" for name in names)),
        )
        return self.place


def make_tables(place: Place) -> None:
    place.before()
    for part in place.parts:
        place.alter(part, lambda connection, part=part: create(connection, place, part))


@pytest.fixture(scope="session")
def postgres_tables(postgres: PostgresServer) -> Generator[EmptiedPostgres]:
    kept = EmptiedPostgres(postgres)
    yield kept
    kept.place.close()


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Place]:
    """An empty database of each kind, with all tables."""
    if request.param == "postgres":
        yield request.getfixturevalue("postgres_tables").emptied()
        return
    made = SQLitePlace(tmp_path / "projection.db" if request.param == "file" else None)
    make_tables(made)
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres"])
def empty_store(request: pytest.FixtureRequest) -> Generator[Store]:
    """An empty store of each dialect, where each statement is a transaction."""
    if request.param == "sqlite":
        made = memory_store()
        yield made
        made.session.driver.close()
        return
    connection = request.getfixturevalue("postgres_tables").emptied().connect(writes=True)
    connection.run(lambda _: None)  # connects
    yield Store(connection.session)
