"""Brings a database to the present tables.

Importing alembic takes most of a second, and nearly every start finds the tables up to date. So this module reads the
version with plain SQL and gives an empty database its tables at once (a test proves them equal to the result of the
migrations). It imports alembic only for a migration.

Each part states its version, since somebody may put back or remove the files of the projection alone, and accounts are
shared. A migration runs on each of them, and asks `holds` which of its tables are there.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, inspect, text

from postroom.errors import DatabaseAway, DatabaseRefuses
from postroom.observe import get_logger
from postroom.store.database import Database
from postroom.store.ports import Place
from postroom.store.schema import REVISION, check_revision
from postroom_a2a.retry import RetryPolicy

log = get_logger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"


START_WAIT = 40.0
"""Seconds that a start waits for a database on another server: after a power cut both come up at once. It is less than
`up` gives a start (`cli.detach.READY_TIMEOUT`).
"""

PAUSES = RetryPolicy(base=0.2, cap=2.0)
"""Pauses between two looks for it."""


async def migrate_patiently(database: Database, wait: float = START_WAIT) -> None:
    """As `migrate`, for a start; a database that is away is waited for, at most `wait` seconds.

    Raises:
        DatabaseAway: it did not come in time, or refuses us.
    """
    loop = asyncio.get_running_loop()
    deadline, failures = loop.time() + wait, 0
    while True:
        try:
            await migrate(database)
        except DatabaseRefuses:
            raise
        except DatabaseAway as error:
            failures += 1
            if failures == 1:
                log.warning("the start waits up to %.0f s for the database: %s", wait, error)
            left = deadline - loop.time()
            if left <= 0:
                raise
            await asyncio.sleep(min(PAUSES.delay(failures), left))
        else:
            return


async def migrate(database: Database) -> None:
    """Bring the tables of `database` to those of `schema`.

    Raises:
        EnvironmentFault: a newer Postroom wrote the database, or one before migrations began.
        StateUnwritable: the disk is full or read-only.
    """
    await database.before()
    for part in database.place.parts:
        await database.alter(part, partial(_migrate, place=database.place, part=part))
    await database.after()


def _migrate(connection: Connection, place: Place, part: str) -> None:
    revision = current_revision(connection)
    if revision == REVISION:
        return
    if revision == "":
        create(connection, place, part)
        return
    check_revision("the database", revision)
    upgrade(connection)


def current_revision(connection: Connection) -> str:
    """The revision that this part of the database states, "" for an empty one."""
    if not inspect(connection).has_table("alembic_version"):
        return ""
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()


def create(connection: Connection, place: Place, part: str) -> None:
    """Make the tables of an empty part of a database and stamp it."""
    place.create(connection, part)
    connection.execute(
        text(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, "
            "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
    )
    connection.execute(
        text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": REVISION}
    )


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Run the missing migrations in the present transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def holds(table: str) -> bool:
    """Whether the part that a migration changes has that table."""
    from alembic import op

    return inspect(op.get_bind()).has_table(table)
