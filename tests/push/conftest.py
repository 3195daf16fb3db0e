"""The databases that the tests of pushes run on: of each kind that a post room may have."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from postroom.store.ports import Place
from postroom.store.sqlite import SQLitePlace
from tests.store.conftest import make_tables, postgres_tables, tasks_elsewhere

__all__ = ["postgres_tables"]


@pytest.fixture(params=["sqlite", "postgres", "surrealdb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Place]:
    """An empty database, with all tables; with SurrealDB the tasks alone are there."""
    if request.param == "postgres":
        yield request.getfixturevalue("postgres_tables").emptied()
        return
    made: Place = SQLitePlace(tmp_path / "projection.db")
    if request.param == "surrealdb":
        made = tasks_elsewhere(made, f"surrealdb+file://{tmp_path}/tasks", tmp_path)
    make_tables(made)
    yield made
    made.close()
