"""What outlives the database that it is in: a backup, a move to the other database, and a rebuild have it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from postroom.store import copying
from postroom.store.database import Database, Store
from postroom.store.schema import IDENTITY
from postroom.store.sqlite import SQLitePlace
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


def kept(store: Store, task: str) -> tuple[object, object]:
    configs = store.pushes.of_task(task)
    rows = store.pushes.about(task, [config.key for config in configs], after=0, limit=10)
    return configs, rows


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
