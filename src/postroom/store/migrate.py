"""Bring a database to the present tables.

Importing alembic takes most of a second, and nearly every start finds the tables as they should be. So the
version is read with plain SQL first, an empty file gets the tables at once (a test proves them equal to what the
migrations make), and alembic is imported only when there is something to migrate.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from postroom.errors import EnvironmentFault
from postroom.store.database import Database
from postroom.store.schema import REVISION, metadata

MIGRATIONS = Path(__file__).parent / "migrations"


async def migrate(database: Database) -> None:
    """Make the tables of `database` those of `schema`.

    Raises:
        EnvironmentFault: it was written by a newer Postroom.
        StateUnwritable: disk full or read-only.
    """
    await database.write(_migrate)


def _migrate(connection: Connection) -> None:
    revision = current_revision(connection)
    if revision == REVISION:
        return
    if revision == "":
        create(connection)
        return
    if revision > REVISION:
        raise EnvironmentFault(
            f"the database has version {revision}, this Postroom knows {REVISION}",
            remedy="start the newer Postroom that wrote it",
        )
    upgrade(connection)


def current_revision(connection: Connection) -> str:
    """The revision that the database says it has, "" for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return ""
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()


def create(connection: Connection) -> None:
    """Make all tables in an empty database and stamp it."""
    metadata.create_all(connection)
    connection.execute(
        text(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
            "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(
        text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": REVISION}
    )


def upgrade(connection: Connection) -> None:
    """Run the migrations that the database has not seen, in the present transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
