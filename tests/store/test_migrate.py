"""Migrations and the short way that a new database takes give the same tables."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from postroom.errors import EnvironmentFault, StateUnwritable
from postroom.store import copying, kept, schema
from postroom.store import migrate as module
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.migrate import migrate
from postroom.store.schema import IDENTITY, PROJECTION, REVISION, metadata
from postroom.store.sqlite import OLD_FILES, SQLitePlace, altering

pytestmark = pytest.mark.anyio

BOB = Agent("b" * 32, "default", "bob", "worker", 1.0)


LATER = """
import sqlalchemy as sa
from alembic import op
from postroom.store.migrate import holds

revision, down_revision = "9000", "{before}"


def upgrade():
    if holds("messages"):
        op.add_column("messages", sa.Column("later", sa.Integer(), server_default=sa.text("7")))
    if holds("agents"):
        op.add_column("agents", sa.Column("mood", sa.Text(), server_default=sa.text("'calm'")))
"""


class Later:
    """A Postroom with one migration more, in place of the present one."""

    def __init__(self, migrations: Path) -> None:
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(module, "MIGRATIONS", migrations)
        self._set(self._patch, "9000")

    def _set(self, patch: pytest.MonkeyPatch, revision: str) -> None:
        for name in (module, schema, copying, kept):
            patch.setattr(name, "REVISION", revision)

    @contextmanager
    def not_yet(self) -> Generator[None]:
        """It is still the present one."""
        with pytest.MonkeyPatch.context() as now:
            self._set(now, REVISION)
            yield

    def end(self) -> None:
        self._patch.undo()


@pytest.fixture
def later(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Later]:
    copied = tmp_path_factory.mktemp("later") / "migrations"
    shutil.copytree(module.MIGRATIONS, copied)
    (copied / "versions" / "9000_later.py").write_text(LATER.format(before=REVISION))
    made = Later(copied)
    yield made
    made.end()


async def filled(path: Path) -> dict[str, Path]:
    """A database with a message's cursor and an agent, and a snapshot of each kind of tables."""
    async with Database(path) as database:
        await migrate(database)
        await database.write(lambda store: store.agents.add_agent(BOB, "bob", b"secret"))
        await database.write(lambda store: store.set_cursor("INBOX", 7))
        kept = {"identity": IDENTITY, "projection": PROJECTION}
        for name, tables in kept.items():
            await asyncio.to_thread(
                copying.take, database, path.with_name(name), "default", tables=tables
            )
    return {name: path.with_name(name) for name in kept}


def of_search(difference: tuple) -> bool:
    """FTS5 makes its own tables; a test of search proves that they are there."""
    return difference[0] == "remove_table" and "_words" in difference[1].name


def test_the_migrations_leave_nothing_to_migrate(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as driver:
        altering(driver, module.upgrade)
        difference = altering(
            driver,
            lambda connection: compare_metadata(MigrationContext.configure(connection), metadata),
        )
    assert [one for one in difference if one[0] != "add_index" and not of_search(one)] == []


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


@pytest.mark.requirement("store-older-refused")
async def test_what_a_migration_changes_is_copied_before_and_the_newest_copies_stay(
    tmp_path: Path, later: Later
):
    for number in range(kept.KEPT):
        (tmp_path / kept.FOLDER / f"2020010{number}-000000-from-0018").mkdir(parents=True)
    with later.not_yet():
        await filled(tmp_path / "a.db")

    place = SQLitePlace(tmp_path / "a.db")
    async with Database(place) as database:
        await migrate(database)
        await migrate(database)
    folder = place.kept
    assert folder is not None

    names = sorted(path.name for path in (tmp_path / kept.FOLDER).iterdir())
    assert (len(names), names[-1]) == (kept.KEPT, folder.name)
    copies = sorted(folder.iterdir())
    assert [path.name for path in copies] == ["a.db", "accounts.db", "blobs.db"]
    assert {(kept._version(copy), copy.stat().st_mode & 0o77) for copy in copies} == {(REVISION, 0)}


@pytest.mark.requirement("store-older-refused")
async def test_without_room_for_the_copy_nothing_is_migrated(tmp_path: Path, later: Later):
    with later.not_yet():
        await filled(tmp_path / "a.db")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (48 * 1024, before[1]))
    try:
        async with Database(tmp_path / "a.db") as database:
            with pytest.raises(StateUnwritable, match="nothing was changed") as caught:
                await migrate(database)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "make room for" in str(caught.value.remedy)
    assert kept._version(tmp_path / "a.db") == REVISION
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


async def test_a_later_version_brings_the_files_of_this_one_up_to_date(
    tmp_path: Path, later: Later
):
    with later.not_yet():
        kept_ones = await filled(tmp_path / "a.db")
    async with Database(tmp_path / "a.db") as database:
        await migrate(database)
        await migrate(database)
        assert await database.read(lambda store: store.cursor("INBOX")) == 7
        moods = await database.read(
            lambda store: store.session.driver.execute(
                "SELECT mood FROM identity.agents"
            ).fetchall()
        )
        assert moods == [("calm",)]
    for path in kept_ones.values():
        assert copying.verify(path).revision == "9000"
    (tmp_path / "other").mkdir()
    async with Database(tmp_path / "other" / "a.db") as database:
        await migrate(database)
        await database.write(lambda store: copying.load(store, kept_ones["identity"], IDENTITY))
        found = await database.read(lambda store: store.agents.agent_by_uid(BOB.uid))
        assert found == BOB


def test_the_first_migration_stands_on_the_present_tables_only_while_it_is_alone():
    first, *others = sorted((module.MIGRATIONS / "versions").glob("*.py"))
    assert first.name.startswith(schema.FIRST_REVISION)
    assert not others or "store.schema" not in first.read_text()


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.requirement("store-older-refused")
async def test_a_database_of_before_is_refused_with_what_brings_it_up_to_date(tmp_path: Path):
    async with Database(tmp_path / "a.db") as database:
        await migrate(database)
    for part in ("accounts", "blobs", "a"):
        with closing(sqlite3.connect(tmp_path / f"{part}.db", isolation_level=None)) as driver:
            driver.execute("UPDATE alembic_version SET version_num = '0017'")
    before = bytes_of(tmp_path)
    async with Database(tmp_path / "a.db") as database:
        with pytest.raises(EnvironmentFault, match="older than version 0018") as refused:
            await migrate(database)
    assert schema.BEFORE_FIRST in (refused.value.remedy or "")
    assert bytes_of(tmp_path) == before


@pytest.mark.requirement("store-older-refused")
@pytest.mark.parametrize("name", OLD_FILES)
async def test_the_files_of_the_first_days_are_refused_and_nothing_is_made_of_them(
    tmp_path: Path, name: str
):
    (tmp_path / name).write_bytes(b"old")
    async with Database(tmp_path / "a.db") as database:
        with pytest.raises(EnvironmentFault, match=name):
            await migrate(database)
    assert bytes_of(tmp_path) == {name: b"old"}


@pytest.mark.requirement("store-older-refused")
async def test_a_snapshot_of_before_is_refused(tmp_path: Path):
    with pytest.MonkeyPatch.context() as before:
        before.setattr(copying, "REVISION", "0017")
        kept = await filled(tmp_path / "a.db")
    with pytest.raises(EnvironmentFault, match="older than version 0018"):
        copying.verify(kept["identity"])
    (tmp_path / "snapshot.db").write_bytes(b"old")
    with pytest.raises(EnvironmentFault, match=r"snapshot\.db"):
        copying.last(tmp_path)
