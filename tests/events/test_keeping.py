"""How long events are kept: in the log until a snapshot holds them, in the database as the user says."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from postroom.events.fold import OVER, RULES
from postroom.events.service import EventLog
from postroom.projection.rebuild import rebuild
from postroom.projection.retention import Pruner, Retention
from postroom.settings.keeping import DAY, keeping
from postroom.store import copying
from postroom.store.database import Database, Store
from postroom.store.events import Usage
from postroom.store.migrate import migrate
from postroom.store.postgres.connection import Address
from postroom.store.postgres.place import PostgresPlace
from postroom.store.schema import sdk_events
from tests.mail.desk import memory_bus
from tests.postgres import PostgresServer

pytestmark = pytest.mark.anyio

ALICE = "a" * 32
ASKED, OPEN = "a1" * 16, "b2" * 16


class Events:
    """Events in a log in memory and in a database in a file."""

    def __init__(self, bus: Any, admin: Any, database: Database, folder: Path) -> None:
        self.admin = admin
        self.database = database
        self.folder = folder
        self.log = EventLog(bus, admin, database)

    async def report(self) -> None:
        """Some of every kind: one approval is settled, one waits."""
        said = [{"type": "text", "text": "x" * 1000}, {"type": "usage", "input_tokens": 7}]
        asked = {"type": "control_request", "request": ASKED, "tool": "Bash"}
        waits = {"type": "control_request", "request": OPEN, "tool": "Edit"}
        await self.log.append(ALICE, [*said, asked, waits], "run", 1)
        answer = {"type": "control_response", "request": ASKED, "decision": "denied"}
        await self.log.append(ALICE, [answer | {"channel": "cli"}])

    async def fold(self) -> None:
        await rebuild(self.database, self.admin, RULES, copying.last(self.folder))

    async def rows(self, database: Database | None = None) -> list[tuple[Any, ...]]:
        target = database or self.database
        every = select(sdk_events).order_by(sdk_events.c.id)
        return await target.read(lambda store: store.session.rows(every))

    async def kinds(self) -> list[str]:
        def find(store: Store) -> list[str]:
            return [row.kind for row in store.events.past(ALICE, 0, 100)]

        return await self.database.read(find)

    def pruner(self, days: float) -> Pruner:
        rule = keeping({"events": "30d"}, "")
        return Pruner(self.database, rule, clock=lambda: time.time() + days * DAY)

    def retention(self, days: float) -> Retention:
        return Retention(
            self.admin,
            self.database,
            self.folder,
            OVER,
            org="default",
            pruner=self.pruner(days),
            clock=lambda: time.time() + days * DAY,
        )

    async def in_log(self) -> int:
        return len([record async for record in self.admin.replay("EVENTS")])


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[Events]:
    async with memory_bus() as (bus, admin, _), Database(folder / "a.db") as database:
        await migrate(database)
        made = Events(bus, admin, database, folder / "snapshots")
        await made.report()
        await made.fold()
        yield made


@pytest.mark.requirement("mail-retention-covered")
async def test_what_is_older_than_it_is_kept_goes_but_what_was_used_and_what_waits_stay(
    tmp_path: Path,
):
    async with opened(tmp_path) as events:
        assert await events.pruner(29).due() == []
        late = events.pruner(31)
        (due,) = await late.due()
        assert (due.kind, due.number) == ("events", 3)
        assert due.size > 1000
        assert await late.prune() == [due]
        assert await events.kinds() == ["usage", "control_request"]

        def left(store: Store) -> tuple[Usage, bool, bool]:
            waits, gone = store.approvals.of(ALICE, OPEN), store.approvals.of(ALICE, ASKED)
            return store.events.usage_of_worker(ALICE), waits is not None, gone is None

        assert await events.database.read(left) == (Usage(7, 0, 0.0), True, True)


@pytest.mark.requirement("mail-retention-covered")
async def test_the_oldest_go_first_where_a_project_has_too_much(tmp_path: Path):
    async with opened(tmp_path) as events:
        for first in range(5, 25, 5):
            said = [{"type": "text", "text": "y" * 60_000}] * 5
            await events.log.append(ALICE, said, "run", first)
        await events.fold()
        rule = keeping({"events": "1MiB"}, "")
        pruner = Pruner(events.database, rule, clock=lambda: time.time() + 2 * DAY)
        (gone,) = await pruner.prune()
        texts = await events.database.read(
            lambda store: store.session.column(select(sdk_events.c.event))
        )
        assert gone.size >= 20 * 60_000 - 2**20
        assert len(texts) == 25 - gone.number
        assert 0 < sum(map(len, texts)) <= 2**20


@pytest.mark.requirement("mail-rebuild-equal")
async def test_records_leave_the_log_once_a_snapshot_holds_them_and_a_rebuild_gives_the_same(
    tmp_path: Path,
):
    async with opened(tmp_path) as events:
        before = await events.rows()
        assert await events.retention(0.5).shorten() == 0
        assert await events.retention(2).shorten() == 2
        assert await events.in_log() == 0
        said = {"type": "text", "text": "later"}
        await events.log.append(ALICE, [said], "run", 5)
        await events.fold()
        after = await events.rows()
        assert after[:-1] == before
        await events.fold()
        assert await events.rows() == after
        # What was reported once is not stored again, though the log has forgotten it.
        await events.log.append(ALICE, [said, said], "run", 4)
        await events.fold()
        assert await events.rows() == after


@pytest.mark.requirement("mail-rebuild-equal")
async def test_nothing_leaves_the_log_that_no_snapshot_holds(tmp_path: Path):
    async with opened(tmp_path) as events:
        await events.log.append(ALICE, [{"type": "text", "text": "not folded"}], "run", 5)
        assert await events.retention(2).shorten() == 2
        assert await events.in_log() == 1


@pytest.mark.requirement("mail-retention-covered")
async def test_what_was_given_up_does_not_come_back_by_a_rebuild(tmp_path: Path):
    async with opened(tmp_path) as events:
        await events.retention(31).shorten()
        await events.fold()
        assert await events.kinds() == ["usage", "control_request"]


@pytest.mark.requirement("mail-rebuild-equal")
async def test_a_rebuild_on_the_other_database_gives_the_same_rows(
    tmp_path: Path, postgres: PostgresServer
):
    async with opened(tmp_path) as events:
        place = PostgresPlace(Address.parse(postgres.new_database()), "default")
        async with Database(place) as other:
            await migrate(other)
            await rebuild(other, events.admin, RULES, None)
            assert [tuple(row) for row in await events.rows(other)] == [
                tuple(row) for row in await events.rows()
            ]
