"""No organisation sees or changes what another one has in the accounts of an installation, whichever database it is."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import delete, insert, select, update

from postroom.errors import Conflict
from postroom.store import copying
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.grants import Admission, GrantRequestRow, GrantRow
from postroom.store.keys import ApiKey, Opening
from postroom.store.migrate import migrate
from postroom.store.ports import Place
from postroom.store.postgres.connection import Address
from postroom.store.postgres.place import PostgresPlace
from postroom.store.schema import ACCOUNTS, agent_cards, agents, invites
from postroom.store.session import insert_new, upsert
from postroom.store.sessions import SessionRow
from postroom.store.sqlite import SQLitePlace
from postroom.store.workers import WorkerRecord
from tests.postgres import PostgresServer

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("org-no-subject-crosses")]

BOB = Agent("b" * 32, "default", "bob", "worker", 1.0)
EVE = Agent("e" * 32, "other", "eve", "worker", 1.0)

Installation = Callable[[str], Place]
"""Gives the place of an organisation."""


@pytest.fixture(scope="module")
def database_url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@pytest.fixture(params=["file", "memory", "postgres"])
def installation(request: pytest.FixtureRequest, tmp_path: Path) -> Installation:
    if request.param == "postgres":
        url, server = (request.getfixturevalue(name) for name in ("database_url", "postgres"))
        if server.sql("SELECT 1 FROM pg_namespace WHERE nspname = 'identity'", url=url):
            for table in reversed(ACCOUNTS):
                server.sql(f"DELETE FROM identity.{table.name}", url=url)
            server.sql("DELETE FROM identity.orgs WHERE org LIKE '%~%'", url=url)
        return lambda org: PostgresPlace(Address.parse(url), org)
    if request.param == "memory":
        name = uuid4().hex
        return lambda org: SQLitePlace(None, org=org, installation=name)

    def in_files(org: str) -> SQLitePlace:
        (tmp_path / org).mkdir(exist_ok=True)
        return SQLitePlace(
            tmp_path / org / "projection.db", org=org, accounts=tmp_path / "accounts.db"
        )

    return in_files


@pytest.fixture
async def both(installation: Installation) -> AsyncGenerator[tuple[Database, Database]]:
    """Two organisations of one installation, each with an agent and everything that it may have."""
    async with AsyncExitStack() as stack:
        opened = []
        for agent in (BOB, EVE):
            database = await stack.enter_async_context(Database(installation(agent.org)))
            await migrate(database)
            await database.write(lambda store, agent=agent: fill(store, agent))
            opened.append(database)
        yield opened[0], opened[1]


def fill(store: Store, agent: Agent) -> None:
    store.agents.add_agent(agent, agent.nick, b"secret")
    store.agents.set_memberships(agent.uid, ["main"])
    key = ApiKey(f"key of {agent.nick}", agent.uid, "", "read", 1.0)
    store.keys.add(key, f"hash of {agent.nick}")
    store.workers.add_worker(worker_of(agent))
    store.openings.open(Opening("folder", "/srv", "copy", 1.0))
    store.credentials.add_credential(f"U{agent.nick}", agent.uid, 9.0)
    store.sessions.add(
        SessionRow(agent.uid, agent.uid, "claude", "key", "/srv", "", "", "idle", 1.0, 1.0)
    )
    store.grants.put(GrantRow(f"grant of {agent.nick}", agent.uid, BOB.uid, "message", "", 1.0))
    store.grants.ask(GrantRequestRow(f"ask {agent.nick}", agent.uid, BOB.uid, "message", "", 1.0))
    store.grants.admit(Admission("open"))
    store.session.run(PUT_INVITE, {"id": f"invite of {agent.nick}", **INVITE})
    store.session.run(PUT_CARD, {"uid": agent.uid, "card": agent.nick, "updated_at": 1.0})


def worker_of(agent: Agent) -> WorkerRecord:
    return WorkerRecord(agent.uid, "main", "", "", "", "running", f"token of {agent.nick}", 1.0)


PUT_INVITE = insert_new(invites)
INVITE = {
    **dict.fromkeys(("sha256", "kind", "scopes", "made_by"), ""),
    "uses": 1,
    "tries": 0,
    "made_at": 1.0,
    "expires_at": 2.0,
    "ended_at": None,
}
PUT_CARD = upsert(agent_cards, ["uid"], ["card", "updated_at"])


def everything(store: Store) -> dict[str, list[tuple[object, ...]]]:
    return {
        table.name: sorted(tuple(row) for row in store.session.rows(select(table)))
        for table in ACCOUNTS
    }


async def test_each_sees_its_own_rows_of_every_table_and_no_others(
    both: tuple[Database, Database],
):
    for database, agent in zip(both, (BOB, EVE), strict=True):
        for table, rows in (await database.read(everything)).items():
            assert len(rows) == 1, table
            assert agent.org in rows[0], table
    ours, theirs = both
    assert await ours.read(lambda store: store.agents.agent_by_uid(EVE.uid)) is None
    assert await ours.point(lambda store: store.agents.agent_by_nick("other", "eve")) is None
    assert await theirs.read(lambda store: store.agents.members_of("main")) == (EVE.uid,)
    assert await theirs.read(lambda store: store.workers.worker_by_token("token of bob")) == ""
    assert await theirs.read(lambda store: store.keys.bearer("hash of bob")) is None
    assert await theirs.write(lambda store: store.credentials.keys_out(now=2.0)) == {"Ueve": 9.0}


async def test_what_changes_or_deletes_everything_leaves_the_rows_of_others(
    both: tuple[Database, Database],
):
    ours, theirs = both
    before = await theirs.read(everything)

    def work(store: Store) -> list[int]:
        run = store.session.run
        done = [run(update(agents).values(nick="x")), run(update(agent_cards).values(card="x"))]
        for table in reversed(ACCOUNTS):
            assert run(delete(table).where(table.c.org == EVE.org)) == 0
            done.append(run(delete(table)))
        return done

    assert await ours.write(work) == [1] * (2 + len(ACCOUNTS))
    assert await theirs.read(everything) == before
    await ours.write(lambda store: fill(store, BOB))
    await ours.write(lambda store: copying.empty(store.session))
    assert await theirs.read(everything) == before


async def test_what_names_the_row_of_another_changes_nothing(both: tuple[Database, Database]):
    ours, theirs = both
    before = await theirs.read(everything)
    for work in (
        lambda store: store.agents.retire_agent(EVE.uid, 2.0),
        lambda store: store.keys.revoke("key of eve", 2.0),
        lambda store: store.workers.set_desired(EVE.uid, "stopped"),
        lambda store: store.workers.remove_worker(EVE.uid),
        lambda store: store.credentials.prolong("Ueve", EVE.uid, 99.0),
        lambda store: store.credentials.forget_keys(["Ueve"]),
    ):
        assert not await ours.write(work)
    with pytest.raises(Conflict):  # the uid is taken, by whomever
        await ours.write(lambda store: fill(store, replace(EVE, org=BOB.org, nick="new")))
    assert await theirs.read(everything) == before


FOR_ANOTHER = (
    lambda store: fill(store, replace(EVE, uid="f" * 32, nick="new")),
    lambda store: store.session.run(
        insert(agent_cards).values(uid=BOB.uid, card="", updated_at=1.0, org="other")
    ),
    lambda store: store.session.run(update(agents).values(org="other")),
    lambda store: store.session.run(
        PUT_CARD, {"uid": EVE.uid, "card": "stolen", "updated_at": 2.0, "org": "other"}
    ),
)


async def test_a_row_of_another_organisation_is_neither_made_nor_given_away(
    both: tuple[Database, Database],
):
    before = [await database.read(everything) for database in both]
    for work in FOR_ANOTHER:
        with pytest.raises((RuntimeError, Conflict)):
            await both[0].write(work)
    assert [await database.read(everything) for database in both] == before


async def test_an_upsert_changes_a_row_of_ones_own_and_takes_none(
    both: tuple[Database, Database],
):
    ours, theirs = both
    row = {"uid": BOB.uid, "card": "new", "updated_at": 2.0}
    assert await ours.write(lambda store: store.session.run(PUT_CARD, row)) == 1
    assert await ours.read(lambda store: store.session.column(select(agent_cards.c.card))) == [
        "new"
    ]
    before = await theirs.read(everything)
    with suppress(RuntimeError, Conflict):  # PostgreSQL says it, SQLite passes over the row
        await ours.write(lambda store: store.session.run(PUT_CARD, row | {"uid": EVE.uid}))
    assert await theirs.read(everything) == before


async def test_whose_key_it_is_is_found_over_all_organisations(both: tuple[Database, Database]):
    ours, theirs = both
    for database in both:
        for ask in (database.read, database.point):
            assert await ask(lambda store: store.keys.org_of("hash of eve")) == "other"
            assert await ask(lambda store: store.keys.org_of("hash of nobody")) == ""
    await theirs.write(lambda store: store.keys.revoke("key of eve", 2.0))
    assert await ours.read(lambda store: store.keys.org_of("hash of eve")) == ""


async def test_a_removed_organisation_leaves_its_name_and_nothing_under_it(
    installation: Installation, both: tuple[Database, Database]
):
    ours, theirs = both
    await theirs.close()
    place = installation("other")
    assert isinstance(place, SQLitePlace | PostgresPlace)
    place.set_aside(12.5)
    place.close()
    if isinstance(place, SQLitePlace) and place.files is not None:
        home = place.files.projection.parent
        with closing(sqlite3.connect(home / "accounts.db")) as kept:
            for table in ACCOUNTS:
                found = kept.execute(f"SELECT org FROM {table.name}").fetchall()
                assert found == [("other",)], table
        assert b"hash of eve" not in shared_content(place)
        shutil.rmtree(home)  # it is moved away
        place.set_aside(13.0)  # again, as after a kill: there is nothing more to do
        home.mkdir()
    async with Database(installation("other")) as database:
        await migrate(database)
        assert not any((await database.read(everything)).values())
        assert await database.read(lambda store: store.keys.bearer("hash of eve")) is None
        assert await ours.read(lambda store: store.keys.org_of("hash of eve")) == ""
        new = replace(EVE, uid="f" * 32)
        await database.write(lambda store: store.agents.add_agent(new, "eve", b"secret"))
    assert len((await ours.read(everything))["agents"]) == 1


def shared_content(place: SQLitePlace) -> bytes:
    """What is in the file of accounts, once all of its log is in it."""
    assert place.files is not None
    with closing(sqlite3.connect(place.files.accounts)) as driver:
        return "".join(driver.iterdump()).encode()


async def test_organisations_that_write_at_the_same_time_wait_for_each_other(
    both: tuple[Database, Database],
):
    def count(store: Store) -> None:
        row = store.session.rows(select(agent_cards.c.updated_at))
        store.session.run(update(agent_cards).values(updated_at=row[0][0] + 1))

    await asyncio.gather(*(database.write(count) for database in both for _ in range(25)))
    for database in both:
        found = await database.read(
            lambda store: store.session.column(select(agent_cards.c.updated_at))
        )
        assert found == [26.0]


async def test_the_list_of_organisations_is_of_those_with_rows(
    both: tuple[Database, Database],
):
    place = both[0].place
    if place.shared:
        return  # nothing of it outlives the post room
    sql = "SELECT org FROM identity.orgs ORDER BY org"
    found = await both[0].read(lambda store: store.session.driver.execute(sql).fetchall())
    assert [org for (org,) in found] == ["default", "other"]
