"""Tasks in SurrealDB beside a database in SQL: what a fault or a crash between both commits leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from library.surrealserver import PASSWORD, SurrealServer
from postroom.errors import Conflict, DatabaseAway, StateUnwritable, StoreLocked
from postroom.projection.rebuild import catch_up
from postroom.projection.rules import Folded, fold_all
from postroom.store import copying, pruning, snapshot
from postroom.store.database import Database, Store
from postroom.store.migrate import migrate
from postroom.store.sqlite import SQLiteConnection, SQLitePlace
from postroom.store.surreal import schema
from postroom.store.surreal.place import OWNER, TasksElsewhere
from postroom_a2a.task_state import TaskState
from tests.store.conftest import tasks_elsewhere
from tests.store.test_tasks import asked
from tests.tasks.log import FIRST, RULES, TASK, next_of, request, stored

pytestmark = pytest.mark.anyio

WORKING = next_of(FIRST, TaskState.WORKING, "at it")
RESULT = next_of(WORKING, TaskState.WORKING, artifact="42")
DONE = next_of(RESULT, TaskState.COMPLETED, "done")

BATCH = {
    "INBOX": [request(1)[1]],
    "TASKS": [stored(1, FIRST, 0), stored(2, WORKING, 1), stored(3, RESULT, 2)],
}
LAST = {"TASKS": [stored(4, DONE, 3)]}


def elsewhere(folder: Path, org: str = "default", url: str = "") -> TasksElsewhere:
    home = folder / org
    home.mkdir(exist_ok=True)
    place = SQLitePlace(home / "projection.db", org=org, accounts=folder / "accounts.db")
    return tasks_elsewhere(place, url or f"surrealdb+file://{folder}/tasks", home, org)


async def opened(place: TasksElsewhere | SQLitePlace) -> Database:
    database = Database(place)
    try:
        await migrate(database)
    except BaseException:
        await database.close()
        raise
    return database


def folding(batch: dict[str, Any]) -> Callable[[Store], Folded]:
    return lambda store: fold_all(store, RULES, batch)


def everything(store: Store) -> tuple[Any, ...]:
    return (
        store.tasks.tasks_by_ids([TASK]),
        store.tasks.events_of(TASK),
        store.tasks.updated(limit=9),
        store.tasks.counts(),
        store.tasks.begun([TASK]),
        store.tasks.milestones(["b" * 32], None, 9, 2**62),
        [store.cursor(stream) for stream in ("INBOX", "TASKS")],
        store.messages.message_at(1),
        store.tasks.sizes(),
        store.tasks.progress([TASK]),
    )


OF_STORED = -2
"""What tells of the stored rows alone, `sizes` and `progress`, comes last."""


async def on_sqlite(folder: Path, *batches: dict[str, Any]) -> tuple[Any, ...]:
    """What SQLite alone has after the same records."""
    async with await opened(SQLitePlace(folder / "other.db", accounts=folder / "o.db")) as database:
        for batch in batches:
            await database.fold(folding(batch))
        return await database.read(everything)


def fail_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQL's commits fail, all that come after this."""
    run = SQLiteConnection.run

    def failing(self: SQLiteConnection, work: Any, **how: Any) -> Any:
        def both(session: Any) -> Any:
            work(session)
            raise StateUnwritable("the disk is full")

        return run(self, both, **how)

    monkeypatch.setattr(SQLiteConnection, "run", failing)


@pytest.mark.requirement("store-contract-kept")
async def test_a_batch_reads_what_it_has_written_and_is_stored_as_in_sqlite(tmp_path: Path):
    async with await opened(elsewhere(tmp_path)) as database:
        told: list[Any] = []

        def twice(store: Store) -> None:
            told.append(fold_all(store, RULES, BATCH).changes)
            told.append(everything(store))

        await database.fold(twice)
        assert [change.state for change in told[0]][-3:] == ["submitted", "working", "working"]
        stored = await database.read(everything)
        assert stored == await on_sqlite(tmp_path, BATCH)
        assert told[1][:OF_STORED] == stored[:OF_STORED]
        await database.fold(folding(LAST))
        ended = await on_sqlite(tmp_path / "default", BATCH, LAST)
        assert await database.read(everything) == ended


@pytest.mark.requirement("store-contract-kept")
async def test_a_fold_that_is_repeated_after_sql_has_failed_tells_of_the_same_changes(
    tmp_path: Path,
):
    async with await opened(elsewhere(tmp_path)) as database:
        for batch in (BATCH, LAST):
            with pytest.MonkeyPatch.context() as patch:
                fail_commits(patch)
                for _ in range(2):
                    with pytest.raises(StateUnwritable):
                        await database.fold(folding(batch))
            again = await database.fold(folding(batch))
            assert len(again.changes) == (5 if batch is BATCH else 1)
            assert again.ignored == 0
        assert await database.read(everything) == await on_sqlite(tmp_path, BATCH, LAST)


@pytest.mark.requirement("store-contract-kept")
async def test_after_a_crash_between_both_commits_the_records_are_folded_again_without_effect(
    tmp_path: Path,
):
    async with await opened(elsewhere(tmp_path)) as database:
        with pytest.MonkeyPatch.context() as patch:
            fail_commits(patch)
            with pytest.raises(StateUnwritable):
                await database.fold(folding(BATCH))
    async with await opened(elsewhere(tmp_path)) as database:
        assert await database.read(lambda store: store.cursor("INBOX")) == 0
        assert await database.read(lambda store: store.tasks.cursors.get("INBOX")) == 1
        await database.fold(folding(BATCH))
        await database.fold(folding(BATCH | LAST))
        assert await database.read(everything) == await on_sqlite(tmp_path, BATCH, LAST)


async def test_what_is_given_up_goes_after_sql_has_committed(tmp_path: Path):
    kind = pruning.KINDS["tasks"]

    def prune(store: Store) -> None:
        kind.give_up(store, kind.page(store, 0, 9))

    async with await opened(elsewhere(tmp_path)) as database:
        await database.fold(folding(BATCH))
        await database.fold(folding(LAST))
        with pytest.MonkeyPatch.context() as patch:
            fail_commits(patch)
            with pytest.raises(StateUnwritable):
                await database.write(prune)
        assert await database.read(lambda store: store.tasks.task_by_id(TASK)) is not None
        events = pruning.KINDS["events"]
        await database.write(lambda store: events.give_up(store, events.page(store, 0, 9)))
        left = await database.read(lambda store: store.tasks.events_of(TASK))
        assert [(row.seq, row.state) for row in left] == [
            (1, "submitted"),
            (2, "working"),
            (4, "completed"),
        ]
        await database.write(prune)
        for ask in (
            lambda store: store.tasks.task_by_id(TASK),
            lambda store: store.messages.message_at(1),
            lambda store: store.tasks.events_past(0, 9),
        ):
            assert not await database.read(ask)


async def test_organisations_see_nothing_of_each_others_tasks(
    tmp_path: Path, surreal_server: SurrealServer
):
    for url in ("", surreal_server.url(f"{tmp_path.name}-orgs")):
        folder = tmp_path / str(bool(url))
        folder.mkdir()
        one, other = elsewhere(folder, url=url), elsewhere(folder, "acme", url=url)
        async with await opened(one) as ours, await opened(other) as theirs:
            await ours.fold(folding(BATCH))
            assert await theirs.read(lambda store: store.tasks.list_tasks(limit=9)) == []
            await theirs.fold(lambda store: store.tasks.insert_task(asked(7)))
            assert len(await ours.read(lambda store: store.tasks.list_tasks(limit=9))) == 1


@pytest.mark.requirement("store-contract-kept")
async def test_the_tasks_of_another_post_room_are_refused(tmp_path: Path):
    async with await opened(elsewhere(tmp_path)) as database:
        with pytest.raises(StoreLocked, match="is open in the process"):
            await opened(elsewhere(tmp_path))
        await database.fold(folding(BATCH))
    (tmp_path / "default" / OWNER).unlink()
    with pytest.raises(Conflict, match="the tasks of another post room"):
        await opened(elsewhere(tmp_path))


async def test_of_two_post_rooms_on_copies_of_a_folder_the_later_writes(
    tmp_path: Path, surreal_server: SurrealServer
):
    url = surreal_server.url(f"{tmp_path.name}-copies")
    async with await opened(elsewhere(tmp_path, url=url)) as first:
        await first.fold(folding(BATCH))
        async with await opened(elsewhere(tmp_path, url=url)) as second:
            with pytest.raises(StoreLocked, match="another post room writes the tasks"):
                await first.fold(folding(LAST))
            await second.fold(folding(LAST))


async def test_while_the_server_is_away_nothing_is_kept_in_sql_either(
    tmp_path: Path, surreal_server: SurrealServer
):
    url = surreal_server.url(f"{tmp_path.name}-away")
    place = elsewhere(tmp_path, url=url)
    assert place.forgets
    async with await opened(place) as database:
        surreal_server.stop()
        try:
            with pytest.raises(DatabaseAway) as away:
                await database.fold(folding(BATCH))
            assert PASSWORD not in str(away.value)
        finally:
            surreal_server.start()
        assert await database.read(lambda store: store.messages.message_at(1)) is None
        await database.fold(folding(BATCH))
        assert await database.read(everything) == await on_sqlite(tmp_path, BATCH)


async def test_a_snapshot_has_the_tasks_and_is_loaded_into_either_database(tmp_path: Path):
    kept = tmp_path / snapshot.NAME
    async with await opened(elsewhere(tmp_path)) as database:
        await database.fold(folding(BATCH))
        await database.fold(folding(LAST))
        await asyncio.to_thread(copying.take, database, kept, "default")
        before = await database.read(everything)
        assert copying.held(kept) == {"INBOX": 1, "TASKS": 4}
        await database.write(lambda store: copying.restore_projection(store, None))
        assert await database.read(lambda store: store.tasks.list_tasks(limit=9)) == []
        assert await catch_up(database, kept)
        assert await database.read(everything) == before
        assert not await catch_up(database, kept)
    async with await opened(SQLitePlace(tmp_path / "p.db", accounts=tmp_path / "a.db")) as other:
        assert await catch_up(other, kept)
        assert await other.read(everything) == before


async def test_tasks_of_another_version_or_place_are_made_anew_from_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    kept = tmp_path / snapshot.NAME
    plain = SQLitePlace(tmp_path / "default" / "projection.db", accounts=tmp_path / "accounts.db")
    (tmp_path / "default").mkdir()
    async with await opened(plain) as database:  # tasks lay in SQL until now
        await database.fold(folding(BATCH))
        await asyncio.to_thread(copying.take, database, kept, "default")
        before = await database.read(everything)
    for version in ("", "next"):
        if version:
            monkeypatch.setattr(schema, "shape", lambda: "another")
        async with await opened(elsewhere(tmp_path)) as database:
            assert await database.read(lambda store: store.tasks.list_tasks(limit=9)) == []
            assert await catch_up(database, kept)
            assert await database.read(everything) == before
    plain = SQLitePlace(tmp_path / "default" / "projection.db", accounts=tmp_path / "accounts.db")
    async with await opened(plain) as database:  # and back
        assert await catch_up(database, kept)
        assert await database.read(everything) == before


async def test_a_read_while_the_fold_commits_is_of_one_moment(tmp_path: Path):
    async with await opened(elsewhere(tmp_path)) as database:
        await database.fold(lambda store: store.tasks.insert_task(asked(1)))

        def change(seq: int) -> Callable[[Store], None]:
            def work(store: Store) -> None:
                row = store.tasks.task_by_id(asked(1).id)
                assert row is not None
                store.tasks.insert_task(asked(seq))
                store.tasks.cursors.set("INBOX", seq)

            return work

        def both(store: Store) -> tuple[int, int]:
            return store.tasks.cursors.get("INBOX"), len(store.tasks.list_tasks(limit=500))

        for seq in range(2, 20):
            found = await asyncio.gather(
                database.fold(change(seq)), *(database.read(both) for _ in range(3))
            )
            for one in found[1:]:
                assert one is not None
                assert max(one[0], 1) == one[1]


def test_keys_sort_as_their_lists(tmp_path: Path):
    instants = [-1e9, -0.5, 0.0, 1e-9, 1.0, 1.0 + 2**-40, 1.7e9, 1.7e9 + 1e-6]
    ids = ["0" * 32, "1" + "f" * 31, "a" * 32, "f" * 32]
    rows = [(at, one) for at in instants for one in ids]
    by_key = sorted(rows, key=lambda row: schema.changed_key(*row))
    assert by_key == sorted(rows, reverse=True)
    task = replace(asked(5), final=True)
    assert [name for name, key in schema.task_keys(task).items() if key is None] == [
        "open_newest",
        "untaken",
        "open_in",
        "open_of",
        "retries",
    ]
