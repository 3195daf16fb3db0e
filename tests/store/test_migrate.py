"""Migrations and the short way that a new database takes give the same tables."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from postroom.errors import EnvironmentFault, StateUnwritable
from postroom.store import kept
from postroom.store import migrate as module
from postroom.store.database import Database
from postroom.store.migrate import migrate
from postroom.store.one_file import OLD_FILE
from postroom.store.schema import REVISION, metadata
from postroom.store.sqlite import SQLitePlace, altering

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


def paths(folder: Path) -> tuple[Path, Path]:
    return folder / "identity.db", folder / "a.db"


def shape_of(file: Path) -> dict[str, object]:
    with closing(sqlite3.connect(file)) as driver:
        return altering(driver, shape)


async def test_a_new_database_has_the_tables_that_the_migrations_make(tmp_path: Path):
    """From the one file of the first version, which was split into two."""
    for name in ("new", "migrated"):
        (tmp_path / name).mkdir()
    async with Database(tmp_path / "new" / "a.db") as new:
        await migrate(new)
    with closing(sqlite3.connect(tmp_path / "migrated" / OLD_FILE, isolation_level=None)) as driver:
        altering(driver, lambda connection: module.upgrade(connection, "0001"))
    async with Database(tmp_path / "migrated" / "a.db") as migrated:
        await migrate(migrated)
        await migrate(migrated)
    assert not (tmp_path / "migrated" / OLD_FILE).exists()
    for made, changed in zip(paths(tmp_path / "new"), paths(tmp_path / "migrated"), strict=True):
        assert shape_of(made) == shape_of(changed)


async def test_what_was_in_one_file_is_in_two_also_after_a_crash_between_the_steps(tmp_path: Path):
    old = tmp_path / OLD_FILE
    with closing(sqlite3.connect(old, isolation_level=None)) as driver:
        altering(driver, lambda connection: module.upgrade(connection, "0007"))
        driver.execute("INSERT INTO agents VALUES ('u', 'o', 'n', 'worker', 'n', x'00', 1.0, NULL)")
        driver.execute("INSERT INTO cursors VALUES ('INBOX', 7), ('TASKS', 3), ('FEED', 2)")
    before = old.read_bytes()
    async with Database(tmp_path / "a.db") as database:
        await migrate(database)
        assert await database.read(lambda store: store.agents.agent_by_uid("u")) is not None
        await database.write(lambda store: store.agents.retire_agent("u", 2.0))
    (tmp_path / "a.db").unlink()
    old.write_bytes(before)  # as if it had been killed before it dropped what it had copied
    async with Database(tmp_path / "a.db") as database:
        await migrate(database)
        agent = await database.read(lambda store: store.agents.agent_by_uid("u"))
        assert agent is not None
        assert agent.retired
        found = [
            await database.read(lambda store, stream=stream: store.cursor(stream))
            for stream in ("INBOX", "TASKS", "FEED")
        ]
        assert found == [7, 3, 2]


async def test_the_migrations_leave_nothing_to_migrate(tmp_path: Path):
    async with Database(tmp_path / "a.db") as database:
        await migrate(database)
        for part, tables in database.place.parts.items():
            names = {table.name for table in tables} | {"alembic_version"}
            options = {
                "include_name": lambda name, kind, _, names=names: kind != "table" or name in names
            }
            difference = await database.alter(
                part,
                lambda connection, options=options: compare_metadata(
                    MigrationContext.configure(connection, opts=options), metadata
                ),
            )
            missing = [one for one in difference if one[0] != "add_table" or one[1].name in names]
            assert [one for one in missing if one[0] != "add_index"] == []


def test_the_revision_of_the_tables_is_the_newest_migration():
    config = Config()
    config.set_main_option("script_location", str(module.MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == REVISION


async def test_a_database_of_a_newer_postroom_is_refused(tmp_path: Path):
    async with Database(tmp_path / "a.db") as database:
        await migrate(database)
        await database.write(
            lambda store: store.session.driver.execute(
                "UPDATE alembic_version SET version_num = '9999'"
            )
        )
        with pytest.raises(EnvironmentFault, match="9999"):
            await migrate(database)


def of_version(folder: Path, revision: str) -> None:
    """Make the one file of an early version."""
    with closing(sqlite3.connect(folder / OLD_FILE, isolation_level=None)) as driver:
        altering(driver, lambda connection: module.upgrade(connection, revision))


@pytest.mark.requirement("migration-copied")
async def test_what_a_migration_changes_is_copied_before_and_the_newest_copies_stay(tmp_path: Path):
    for number in range(kept.KEPT):
        (tmp_path / kept.FOLDER / f"2020010{number}-000000-from-0001").mkdir(parents=True)
    of_version(tmp_path, "0003")

    place = SQLitePlace(tmp_path / "a.db")
    async with Database(place) as database:
        await migrate(database)
        await migrate(database)
    folder = place.kept
    assert folder is not None

    names = sorted(path.name for path in (tmp_path / kept.FOLDER).iterdir())
    assert (len(names), names[-1]) == (kept.KEPT, folder.name)
    assert [path.name for path in folder.iterdir()] == [OLD_FILE]
    copy = folder / OLD_FILE
    assert (kept._version(copy), copy.stat().st_mode & 0o77) == ("0003", 0)


@pytest.mark.requirement("migration-copied")
async def test_without_room_for_the_copy_nothing_is_migrated(tmp_path: Path):
    of_version(tmp_path, "0003")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        async with Database(tmp_path / "a.db") as database:
            with pytest.raises(StateUnwritable, match="nothing was changed") as caught:
                await migrate(database)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "make room for" in str(caught.value.remedy)
    assert kept._version(tmp_path / OLD_FILE) == "0003"
    assert list((tmp_path / kept.FOLDER).iterdir()) == []


async def test_a_new_database_is_not_copied(tmp_path: Path):
    async with Database(tmp_path / "a.db") as database:
        await migrate(database)
    assert not (tmp_path / kept.FOLDER).exists()


async def test_migrating_twice_keeps_what_is_stored(tmp_path: Path):
    async with Database(tmp_path / "a.db") as database:
        await migrate(database)
        await database.write(lambda store: store.set_cursor("INBOX", 7))
        await migrate(database)
        assert await database.read(lambda store: store.cursor("INBOX")) == 7


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
