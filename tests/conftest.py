"""What every test gets: all that those of the library get (the event loop's kind, hypothesis), and a PostgreSQL."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from library.conftest import anyio_backend

if TYPE_CHECKING:
    from tests.postgres import PostgresServer

__all__ = ["anyio_backend", "postgres"]


@pytest.fixture(scope="session")
def postgres() -> Generator[PostgresServer]:
    """A PostgreSQL for the tests of this process; each takes a database, or an organisation, of its own."""
    from tests.postgres import running_postgres

    with running_postgres() as server:
        yield server
