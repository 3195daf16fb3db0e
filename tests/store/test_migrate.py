"""Migrations and the short way that a new database takes give the same tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from postroom.errors import EnvironmentFault
from postroom.store import migrate as module
from postroom.store.database import Connection, Database
from postroom.store.migrate import migrate
from postroom.store.schema import REVISION, metadata

pytestmark = pytest.mark.anyio


def shape(connection: Connection) -> dict[str, object]:
    """Tables with their columns, foreign keys and indexes, as SQLite tells them."""
    names = connection.execute(
        text("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY 1")
    )
    tables = {}
    for name in names.scalars().all():
        indexes = {}
        for row in connection.execute(text(f"PRAGMA index_list('{name}')")).mappings():
            if not row["name"].startswith("sqlite_autoindex"):
                sql = "SELECT sql FROM sqlite_master WHERE name = :name"
                indexes[row["name"]] = connection.execute(text(sql), {"name": row["name"]}).scalar()
            else:
                columns = connection.execute(text(f"PRAGMA index_info('{row['name']}')"))
                indexes[tuple(c.name for c in columns)] = row["unique"]
        tables[name] = {
            "columns": [tuple(c) for c in connection.execute(text(f"PRAGMA table_info('{name}')"))],
            "keys": [
                tuple(k) for k in connection.execute(text(f"PRAGMA foreign_key_list('{name}')"))
            ],
            "indexes": indexes,
        }
    return tables


def migrate_from_nothing(connection: Connection) -> None:
    module.upgrade(connection)


async def test_a_new_database_has_the_tables_that_the_migrations_make(tmp_path: Path):
    async with Database(tmp_path / "new.db") as new, Database(tmp_path / "migrated.db") as migrated:
        await migrate(new)
        await migrated.write(migrate_from_nothing)

        assert await new.read(shape) == await migrated.read(shape)
        assert await new.read(module.current_revision) == await migrated.read(
            module.current_revision
        )


async def test_the_migrations_leave_nothing_to_migrate(tmp_path: Path):
    async with Database(tmp_path / "a.db") as database:
        await database.write(migrate_from_nothing)
        difference = await database.read(
            lambda c: compare_metadata(MigrationContext.configure(c), metadata)
        )
        assert difference == []


def test_the_revision_of_the_tables_is_the_newest_migration():
    config = Config()
    config.set_main_option("script_location", str(module.MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == REVISION


async def test_a_database_of_a_newer_postroom_is_refused(tmp_path: Path):
    async with Database(tmp_path / "a.db") as database:
        await migrate(database)
        await database.write(
            lambda c: c.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        )
        with pytest.raises(EnvironmentFault, match="9999"):
            await migrate(database)


async def test_migrating_twice_keeps_what_is_stored(tmp_path: Path):
    async with Database(tmp_path / "a.db") as database:
        await migrate(database)
        await database.write(lambda c: c.execute(text("INSERT INTO cursors VALUES ('INBOX', 7)")))
        await migrate(database)
        assert (
            await database.read(lambda c: c.execute(text("SELECT seq FROM cursors")).scalar()) == 7
        )


def test_a_start_with_present_tables_does_not_load_alembic(tmp_path: Path):
    script = (
        "import asyncio, sys; from pathlib import Path\n"
        "from postroom.store.database import Database; from postroom.store.migrate import migrate\n"
        "async def main():\n"
        "    for _ in range(2):\n"
        f"        async with Database(Path({str(tmp_path / 'a.db')!r})) as database: await migrate(database)\n"
        "asyncio.run(main()); print('alembic' in sys.modules)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.strip() == "False"
