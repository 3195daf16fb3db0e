"""What outlives the database that it is in: a backup, a move to the other database, and a rebuild have it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest

from postroom.store import copying, migrate
from postroom.store.database import Database, Store
from postroom.store.schema import IDENTITY
from postroom.store.sqlite import SQLitePlace, altering
from postroom.store.webhooks import HookRow
from tests.push.receivers import answering, receiver
from tests.push.rig import Tasks, tasks_in
from tests.store.conftest import EmptiedPostgres, make_tables

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tasks(tmp_path: Path) -> AsyncGenerator[Tasks]:
    place = SQLitePlace(tmp_path / "projection.db")
    make_tables(place)
    async with Database(place) as database, tasks_in(database) as found:
        yield found


def kept(store: Store, task: str) -> tuple[object, ...]:
    configs = store.pushes.of_task(task)
    rows = store.pushes.about(task, [config.key for config in configs], after=0, limit=10)
    return configs, rows, store.webhooks.all(), store.webhooks.cursor("INBOX")


@pytest.mark.requirement("pushes-not-lost")
async def test_a_backup_and_a_move_to_the_other_database_have_every_config_and_its_schedule(
    tasks: Tasks, postgres_tables: EmptiedPostgres, tmp_path: Path
):
    async with receiver(answering(500)) as hook, tasks.pushing(f"127.0.0.1:{hook.port}"):
        task = await tasks.task()
        await tasks.push_to(hook.url, task, token="kept", scheme="Bearer", credentials="kept")
        await tasks.say(task, "working", "completed")
        await hook.until(1)
        await tasks.until(task, "pending", "pending", attempts=1)
    hook = HookRow("wh_1", tasks.anna.uid, "", "https://h/", "receipt", "sealed", tasks.clock())
    await tasks.database.write(lambda store: store.webhooks.put(hook))
    await tasks.database.write(lambda store: store.webhooks.move("INBOX", 7))
    before = await tasks.database.read(lambda store: kept(store, task))
    path = tmp_path / "identity"
    await asyncio.to_thread(copying.take, tasks.database, path, "default", tables=IDENTITY)
    other = SQLitePlace(tmp_path / "other" / "projection.db")
    (tmp_path / "other").mkdir()
    make_tables(other)
    for place in (postgres_tables.emptied(), other):
        async with Database(place) as database:
            await database.write(lambda store: copying.load(store, path, IDENTITY))
            assert await database.read(lambda store: kept(store, task)) == before


async def test_a_rebuild_of_the_projection_leaves_the_configs_and_repeats_no_push(tasks: Tasks):
    async with receiver() as hook:
        async with tasks.pushing(f"127.0.0.1:{hook.port}"):
            task = await tasks.task()
            await tasks.push_to(hook.url, task)
            await tasks.say(task, "working")
            await tasks.until(task, "delivered")
        path = tasks.database.path
        assert path is not None
        snapshot = path.with_name("snapshot")
        await asyncio.to_thread(copying.take, tasks.database, snapshot, "default")
        await tasks.database.write(lambda store: copying.restore_projection(store, snapshot))
        async with tasks.pushing(f"127.0.0.1:{hook.port}"):
            await tasks.say(task, "completed")
            await hook.until(2)
            assert hook.what == ["working", "completed"]


@pytest.mark.requirement("secrets-sealed")
def test_a_config_of_the_version_before_is_known_not_to_be_sealed(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "old.db", isolation_level=None)) as driver:
        altering(driver, lambda connection: migrate.upgrade(connection, "0019"))
        values = "'k', 'c', 't', 'o', '', 'https://h/', 'in-clear', '', '', '1.0', 0, 0, 0"
        driver.execute(f"INSERT INTO push_configs VALUES ({values})")
        altering(driver, migrate.upgrade)
        found = driver.execute("SELECT token, sealed FROM push_configs").fetchall()
        assert found == [("in-clear", 0)]
        assert driver.execute("SELECT count(*) FROM webhooks").fetchone() == (0,)
