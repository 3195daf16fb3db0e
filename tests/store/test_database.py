"""The runner of the SQL store."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from postroom.errors import Conflict, DatabaseBusy, EnvironmentFault, StateUnwritable, StoreLocked
from postroom.store.blobs import EVERYBODY, BlobRow
from postroom.store.database import CHECKPOINT, Database, Store
from postroom.store.messages import MessageRow
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


async def test_what_nobody_waits_for_counts_until_a_thread_has_passed_it_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("postroom.store.database.QUEUE_LIMIT", 3)
    begun, go_on = threading.Event(), threading.Event()

    def hold(_: Store) -> None:
        begun.set()
        assert go_on.wait(30)

    async with opened(tmp_path / "a.db") as database:
        await database.write(make_table)
        held = asyncio.create_task(database.write(hold))
        await asyncio.to_thread(begun.wait, 30)
        left = [asyncio.create_task(database.write(add(n))) for n in range(2)]
        await asyncio.sleep(0)
        for each in left:
            each.cancel()
        await asyncio.wait(left)

        with pytest.raises(DatabaseBusy, match="too many calls"):
            await database.write(add(2))

        go_on.set()
        await held
        await database.write(add(3))
        assert await database.read(count) == 1
        assert database.statistics().waiting == 0


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


async def test_accounts_and_blobs_are_synced_at_a_commit_and_the_projection_is_not(tmp_path: Path):
    full, normal = 2, 1
    async with opened(tmp_path / "a.db") as database:
        for schema, expected in (("main", full), ("identity", full), ("projection", normal)):
            pragma = f"PRAGMA {schema}.synchronous"
            for run in (database.write, database.fold):
                found = await run(lambda c, sql=pragma: c.session.driver.execute(sql).fetchone()[0])
                assert found == expected


def fold_one(store: Store) -> None:
    store.set_cursor("INBOX", store.cursor("INBOX") + 1)


@pytest.mark.requirement("org-no-subject-crosses")
async def test_a_fold_waits_for_no_other_organisation_and_touches_no_accounts(tmp_path: Path):
    file = tmp_path / "accounts.db"
    async with opened(SQLitePlace(tmp_path / "a.db", timeout=0.01)) as database:
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # as another organisation that writes
            logged = file.with_name("accounts.db-wal").read_bytes()
            for number in range(
                1, 2 * CHECKPOINT
            ):  # in the event loop, and each so often in the thread
                await database.fold(fold_one, few=bool(number % 3))
            await database.write(fold_one, accounts=False)
            with pytest.raises(StoreLocked):
                await database.write(fold_one)
            assert file.with_name("accounts.db-wal").read_bytes() == logged
            other.execute("ROLLBACK")
        assert await database.read(lambda store: store.cursor("INBOX")) == 2 * CHECKPOINT


@pytest.mark.requirement("org-no-subject-crosses")
async def test_who_waits_for_accounts_holds_up_no_fold(tmp_path: Path):
    async with opened(tmp_path / "a.db") as database:
        with closing(sqlite3.connect(tmp_path / "accounts.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            writing = asyncio.create_task(database.write(fold_one))
            await asyncio.sleep(0)  # it goes to its thread, and may wait there already
            for _ in range(CHECKPOINT // 2):
                await database.fold(fold_one, few=True)
            assert not writing.done()
            other.execute("ROLLBACK")
        await writing


@pytest.mark.requirement("store-contract-kept")
async def test_what_is_lost_between_the_files_of_a_commit_is_folded_again(tmp_path: Path):
    """The projection comes last: here its log may not grow, after the blobs' part is on disk."""
    blob = BlobRow("a" * 64, 1, "", 1.0, 1.0)
    row = MessageRow(1, "m", "s", "r", "long" * 500_000, "{}", 1.0, 1.0, 1.0)

    def fold_both(store: Store) -> None:
        store.blobs.pass_on([blob.sha256], "s", "r")
        assert store.messages.insert_message(row)

    def both(store: Store) -> tuple[int, bool]:
        readers = store.session.driver.execute("SELECT count(*) FROM blob_readers").fetchone()[0]
        return readers, store.messages.message_at(1) is not None

    async with opened(tmp_path / "a.db") as database:
        await database.write(lambda store: store.blobs.store_blob(blob, EVERYBODY))
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
        try:
            with pytest.raises(StateUnwritable):
                await database.fold(fold_both)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert await database.read(both) == (2, False)
        await database.fold(fold_both)
        assert await database.read(both) == (2, True)


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
