"""The databases that the tests of the store run on."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from library.surrealserver import SurrealServer, running_surreal
from postroom.store.copying import TABLES
from postroom.store.database import Store
from postroom.store.migrate import create
from postroom.store.ports import Place
from postroom.store.postgres.connection import Address
from postroom.store.postgres.place import PostgresPlace
from postroom.store.sqlite import SQLitePlace
from postroom.store.surreal.place import TaskDatabase, TasksElsewhere
from postroom.store.surreal.session import SurrealSession
from postroom.store.surreal.tables import SurrealTables
from postroom.store.surreal.tasks import SurrealTasks
from postroom_a2a import surreal
from tests.postgres import PostgresServer
from tests.stores import memory_store

KINDS = ("file", "memory", "postgres", "surrealdb", "surrealdb-server")


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
    place.after()


def tasks_elsewhere(place: Place, url: str, home: Path, org: str = "default") -> TasksElsewhere:
    """`place` with the organisation's tasks in the SurrealDB at `url`."""
    return TasksElsewhere(place, TaskDatabase(surreal.Address.parse(url), org, home))


@pytest.fixture(scope="session")
def surreal_server() -> Generator[SurrealServer]:
    with running_surreal() as server:
        yield server


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
    made = SQLitePlace(None if request.param == "memory" else tmp_path / "projection.db")
    if request.param == "surrealdb":
        made = tasks_elsewhere(made, f"surrealdb+file://{tmp_path}/tasks", tmp_path)
    elif request.param == "surrealdb-server":
        url = request.getfixturevalue("surreal_server").url(tmp_path.name)
        made = tasks_elsewhere(made, url, tmp_path)
    make_tables(made)
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres", "surrealdb"])
def empty_store(request: pytest.FixtureRequest) -> Generator[Store]:
    """An empty store of each dialect, where each statement is a transaction."""
    if request.param == "sqlite":
        made = memory_store()
        yield made
        made.session.driver.close()
        return
    if request.param == "surrealdb":
        made = memory_store()
        database = TaskDatabase(surreal.Address.parse("surrealdb+mem://"), "default", None)
        database.claim()
        session = SurrealSession(database, writes=True, alone=True)
        yield Store(made.session, SurrealTasks(session), SurrealTables(database))
        database.close()
        made.session.driver.close()
        return
    connection = request.getfixturevalue("postgres_tables").emptied().connect(writes=True)
    connection.run(lambda _: None)  # connects
    yield Store(connection.session)
