"""Search, threads, and what each reader has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from alembic import op

from postroom.store import search
from postroom.store.migrate import holds
from postroom.store.session import Session
from postroom.store.sqlite import ONE_FILE

if TYPE_CHECKING:
    from postroom.store.session import Driver

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Index what was said; 100,000 messages take a few seconds."""
    if holds("messages"):
        search.make(_session())


def _session() -> Session:
    connection = op.get_bind()
    driver = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        return Session(ONE_FILE, cast("Driver", driver))
    import psycopg

    from postroom.store.postgres.connection import DIALECT

    return Session(DIALECT, cast("Driver", psycopg.RawCursor(cast("psycopg.Connection", driver))))
