"""The runner of the SQL store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from postroom.errors import Conflict, EnvironmentFault, StateUnwritable, StoreLocked
from postroom.store.database import Database, Store
from postroom.store.migrate import migrate
from postroom.store.sqlite import SQLitePlace

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(place: Path | SQLitePlace | None) -> AsyncGenerator[Database]:
    async with Database(place) as database:
        await migrate(database)
        yield database


def make_table(store: Store) -> None:
    store.session.driver.execute("CREATE TABLE t (n INTEGER PRIMARY KEY)")


def add(n: int):
    return lambda store: store.session.driver.execute(("INSERT INTO t VALUES (:n)"), {"n": n})


def count(store: Store) -> int:
    return store.session.driver.execute("SELECT count(*) FROM t").fetchone()[0]


async def test_a_write_that_fails_changes_nothing(tmp_path: Path):
    async with opened(tmp_path / "a.db") as database:
        await database.write(make_table)

        def half(store: Store) -> None:
            add(1)(store)
            raise LookupError

        with pytest.raises(LookupError):
            await database.write(half)
        assert await database.read(count) == 0


async def test_writes_from_many_tasks_are_all_kept(tmp_path: Path):
    async with opened(tmp_path / "a.db") as database:
        await database.write(make_table)
        await asyncio.gather(*(database.write(add(n)) for n in range(100)))
        assert await database.read(count) == 100


async def test_a_read_cannot_write(tmp_path: Path):
    async with opened(tmp_path / "a.db") as database:
        await database.write(make_table)
        with pytest.raises(StateUnwritable):
            await database.read(add(1))


async def test_a_database_in_memory_keeps_what_was_written():
    async with opened(None) as database:
        await database.write(make_table)
        await database.write(add(1))
        assert await database.read(count) == 1


async def test_a_commit_is_synced_to_disk(tmp_path: Path):
    full = 2
    async with opened(tmp_path / "a.db") as database:
        pragma = await database.write(
            lambda c: c.session.driver.execute("PRAGMA synchronous").fetchone()[0]
        )
        assert pragma == full


async def test_a_broken_foreign_key_is_refused(tmp_path: Path):
    async with opened(tmp_path / "a.db") as database:
        await database.write(make_table)
        await database.write(
            lambda c: c.session.driver.execute("CREATE TABLE r (n INTEGER REFERENCES t(n))")
        )
        with pytest.raises(Conflict):
            await database.write(lambda c: c.session.driver.execute("INSERT INTO r VALUES (7)"))


@pytest.mark.requirement("disk-full-refused")
async def test_a_full_disk_is_state_unwritable_and_what_was_stored_stays(tmp_path: Path):
    async with opened(tmp_path / "a.db") as database:
        await database.write(make_table)
        await database.write(add(1))

        def fill(store: Store) -> None:
            store.session.driver.execute("PRAGMA max_page_count = 3")
            store.session.driver.execute("CREATE TABLE big (b BLOB)")
            store.session.driver.execute("INSERT INTO big VALUES (zeroblob(1000000))")

        with pytest.raises(StateUnwritable, match="full"):
            await database.write(fill)
        assert await database.read(count) == 1


@pytest.mark.requirement("disk-full-refused")
async def test_a_folder_that_does_not_exist_is_state_unwritable(tmp_path: Path):
    with pytest.raises(StateUnwritable):
        async with opened(tmp_path / "no" / "a.db"):
            pass


async def test_a_file_that_is_no_database_is_a_fault_of_the_environment(tmp_path: Path):
    path = tmp_path / "a.db"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(EnvironmentFault, match="damaged"):
        async with opened(path):
            pass


async def test_a_lock_of_another_process_is_store_locked(
    tmp_path: Path,
):
    async with opened(tmp_path / "a.db") as database:
        await database.write(make_table)
        async with opened(SQLitePlace(tmp_path / "a.db", timeout=0.01)) as other:

            def hold(store: Store) -> None:
                add(1)(store)
                with pytest.raises(StoreLocked):
                    asyncio.run(other.write(add(2)))

            await database.write(hold)
