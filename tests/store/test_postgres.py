"""What only a database that runs elsewhere can do: be away, be shared, be misused."""

from __future__ import annotations

import asyncio
import logging
import shutil
import traceback
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom.control import up
from postroom.errors import (
    Conflict,
    DatabaseAway,
    DatabaseRefuses,
    EnvironmentFault,
    PostroomError,
    RequestTimeout,
    StateUnwritable,
    StoreLocked,
)
from postroom.feed.events import streamed
from postroom.feed.records import RecordFeed
from postroom.projection.changes import MAIL, Changes
from postroom.store import migrate as migrating
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.keys import ApiKey
from postroom.store.migrate import migrate, migrate_patiently
from postroom.store.postgres import connection as module
from postroom.store.postgres import place as placing
from postroom.store.postgres.connection import Address
from postroom.store.postgres.place import PostgresPlace
from postroom.store.postgres.tables import org_tables, schema_of, shared_tables, views
from tests.postgres import PASSWORD, PostgresServer, running_postgres

pytestmark = pytest.mark.anyio

BOB = Agent("b" * 32, "default", "bob", "worker", 1.0)
EVE = Agent("e" * 32, "other", "eve", "worker", 1.0)


@asynccontextmanager
async def opened(url: str, org: str = "default") -> AsyncGenerator[Database]:
    async with Database(PostgresPlace(Address.parse(url), org)) as database:
        await migrate(database)
        yield database


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> str:
    """A database for the tests that mind no others; each uses organisations of its own."""
    return postgres.new_database()


@pytest.fixture
def fragile() -> Generator[PostgresServer]:
    """A server to kill."""
    with running_postgres() as server:
        yield server


def add(agent: Agent):
    return lambda store: store.agents.add_agent(agent, agent.nick, b"secret")


def say(sql: str):
    """Run a statement as it is."""
    return lambda store: store.session.driver.execute(sql).fetchall()


def agents(store: Store) -> list[str]:
    return [agent.nick for org in ("default", "other") for agent in store.agents.all_agents(org)]


@pytest.mark.requirement("org-no-subject-crosses")
async def test_organisations_in_one_database_do_not_see_each_other(url: str):
    async with opened(url) as ours, opened(url, "other") as theirs:

        def fill(agent: Agent, key: str):
            def work(store: Store) -> None:
                add(agent)(store)
                store.keys.add(ApiKey(key, agent.uid, "", "read", 1.0), f"hash of {key}")
                store.agents.set_memberships(agent.uid, ["main"])
                store.credentials.add_credential(f"U{key}", agent.uid, 9.0)

            return work

        await ours.write(fill(BOB, "k1"))
        await theirs.write(fill(EVE, "k2"))

        def all_of(store: Store) -> tuple[object, ...]:
            return (
                agents(store),
                store.agents.agent_by_uid(EVE.uid),
                [key.uid for key in store.keys.listed()],
                store.keys.bearer("hash of k2"),
                store.agents.members_of("main"),
                store.credentials.keys_out(now=2.0),
            )

        assert await ours.write(all_of) == (
            ["bob"],
            None,
            [BOB.uid],
            None,
            (BOB.uid,),
            {"Uk1": 9.0},
        )
        assert await theirs.write(lambda store: store.agents.retire_agent(BOB.uid, 2.0)) is False
        assert not await theirs.write(lambda store: store.keys.revoke("k1", 2.0))
        assert await theirs.write(agents) == ["eve"]


async def test_a_row_for_another_organisation_is_refused_and_not_shown(url: str):
    async with opened(url, "refusing") as database:
        with pytest.raises(RuntimeError, match="check option") as caught:
            await database.write(add(replace(BOB, uid="3" * 32, nick="new")))
    shown = "".join(traceback.format_exception(caught.value))
    assert b"secret".hex() not in shown


@pytest.mark.requirement("org-no-subject-crosses")
async def test_a_second_post_room_on_the_same_organisation_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "LOCK_WAIT", 0.0)
    async with opened(url, "locked"):
        with pytest.raises(StoreLocked, match="locked"):
            async with opened(url, "locked"):
                pass
    async with opened(url, "locked") as database:  # the first has closed it
        assert await database.read(agents) == []


async def test_what_is_done_with_a_lost_connection_has_not_happened(
    url: str, postgres: PostgresServer
):
    async with opened(url, "lost") as database:
        bob = replace(BOB, org="lost", uid="1" * 32)

        def lose(store: Store) -> None:
            add(bob)(store)
            ((pid,),) = say("SELECT pg_backend_pid()")(store)
            postgres.sql(f"SELECT pg_terminate_backend({pid}, 5000)")
            add(replace(bob, nick="other", uid="2" * 32))(store)

        with pytest.raises(DatabaseAway):
            await database.write(lose)
        assert await database.read(lambda store: store.agents.agent_by_uid(bob.uid)) is None
        await database.write(add(bob))


@pytest.mark.requirement("postgres-outage-survived")
async def test_a_server_that_is_killed_and_started_again_has_what_was_answered(
    fragile: PostgresServer,
):
    async with opened(fragile.new_database()) as database:
        await database.write(add(BOB))
        assert await database.read(agents) == ["bob"]
        fragile.kill()
        for call in (database.read(agents), database.write(add(EVE)), database.fold(agents)):
            with pytest.raises(DatabaseAway) as caught:
                await call
            assert PASSWORD not in "".join(traceback.format_exception(caught.value))
        fragile.start()
        assert await database.read(agents) == ["bob"]
        with pytest.raises(Conflict):
            await database.write(add(BOB))


@pytest.mark.requirement("postgres-outage-survived")
async def test_a_start_waits_for_a_server_that_is_just_coming_up_and_says_so(
    fragile: PostgresServer, caplog: pytest.LogCaptureFixture
):
    url = fragile.new_database()
    fragile.kill()
    said = asyncio.Event()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.set()

    heard = Heard(logging.WARNING)
    logging.getLogger("postroom.store.migrate").addHandler(heard)
    try:
        async with Database(PostgresPlace(Address.parse(url), "default")) as database:
            starting = asyncio.create_task(migrate_patiently(database))
            async with asyncio.timeout(30):
                await said.wait()
            await asyncio.to_thread(fragile.start)
            await starting
            assert await database.read(agents) == []
    finally:
        logging.getLogger("postroom.store.migrate").removeHandler(heard)
        if not fragile.runs:
            fragile.start()
    assert "waits up to 40 s for the database" in caplog.text


@pytest.mark.requirement("postgres-outage-survived")
async def test_a_start_gives_up_in_the_end_and_at_once_where_waiting_helps_nobody(
    fragile: PostgresServer,
):
    url = fragile.new_database()
    wrong = Address.parse(url.replace(PASSWORD, "wrong"))
    async with Database(PostgresPlace(wrong, "default")) as database:
        with pytest.raises(DatabaseRefuses, match="password authentication failed"):
            await migrate_patiently(database)
    fragile.kill()
    try:
        async with Database(PostgresPlace(Address.parse(url), "default")) as database:
            with pytest.raises(DatabaseAway, match="does not answer"):
                await migrate_patiently(database, wait=0.3)
    finally:
        fragile.start()


def test_the_end_for_want_of_the_database_is_one_line_and_a_bug_has_its_traceback(
    caplog: pytest.LogCaptureFixture,
):
    away = ExceptionGroup("", [DatabaseAway("it is away"), DatabaseAway("it is away")])
    up._note_end(away)
    assert caplog.messages == ["the post room ends: it is away"]
    assert caplog.records[0].exc_info is None
    up._note_end(ExceptionGroup("", [DatabaseAway("it is away"), KeyError("x")]))
    assert caplog.records[1].exc_info


async def test_a_stream_that_loses_the_database_ends_without_an_exception(
    caplog: pytest.LogCaptureFixture,
):
    async def read(**_page: int) -> list[Any]:
        raise DatabaseAway("it is away")

    feed = RecordFeed(Changes(), MAIL, "mail", read)
    found = [piece async for piece in streamed(feed, 1).body_iterator]
    assert found == [": open\n\n"]
    assert "it is away" in caplog.text


@pytest.mark.requirement("store-contract-kept")
async def test_only_the_fold_does_not_wait_for_the_disk(url: str, postgres: PostgresServer):
    asleep = "SHOW synchronous_commit"
    async with opened(url, "flushed") as database:
        assert await database.write(say(asleep)) == [("on",)]
        assert await database.fold(say(asleep)) == [("off",)]
        assert await database.write(say(asleep)) == [("on",)]


async def test_a_user_whose_commits_are_not_flushed_gets_flushed_ones(postgres: PostgresServer):
    url = postgres.new_database()
    postgres.sql(f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit TO off")
    async with opened(url) as database:
        assert await database.write(say("SHOW synchronous_commit")) == [("on",)]


@pytest.mark.parametrize(
    "code, fault",
    [
        ("53100", StateUnwritable),
        ("53200", StateUnwritable),
        ("25006", StateUnwritable),
        ("40P01", StoreLocked),
        ("40001", StoreLocked),
        ("55P03", StoreLocked),
        ("57014", RequestTimeout),
        ("57P01", DatabaseAway),
        ("53300", DatabaseAway),
        ("28P01", DatabaseRefuses),
        ("42501", EnvironmentFault),
        ("XX001", EnvironmentFault),
        ("23505", Conflict),
        ("23503", Conflict),
        ("42P01", RuntimeError),
        ("23502", RuntimeError),
    ],
)
async def test_what_postgresql_reports_has_a_type(url: str, code: str, fault: type[Exception]):
    raises = f"DO $$ BEGIN RAISE 'said' USING ERRCODE = '{code}', DETAIL = 'a row'; END $$"
    async with opened(url, "faulty") as database:
        with pytest.raises(fault) as caught:
            await database.write(lambda store: store.session.driver.execute(raises))
        assert type(caught.value) is fault
        assert "a row" not in str(caught.value)
        if isinstance(caught.value, PostroomError):
            assert PASSWORD not in caught.value.remedy
        assert await database.write(say("SELECT 1")) == [(1,)]


async def test_a_statement_that_takes_too_long_is_ended(url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "STATEMENT_TIMEOUT", 0.05)
    async with opened(url, "slow") as database:
        with pytest.raises(RequestTimeout):
            await database.read(say("SELECT pg_sleep(60)"))
        with database.aside() as store:  # what copies everything may take its time
            assert await asyncio.to_thread(say("SELECT 1 FROM pg_sleep(0.1)"), store) == [(1,)]


@pytest.mark.requirement("settings-precedence")
async def test_a_wrong_password_is_a_fault_that_names_no_password(postgres: PostgresServer):
    wrong = PASSWORD[::-1]
    with pytest.raises(DatabaseAway, match="password authentication failed") as caught:
        async with opened(postgres.url(password=wrong)):
            pass
    assert wrong not in "".join(traceback.format_exception(caught.value))


async def test_a_database_that_does_not_exist_is_named(postgres: PostgresServer):
    with pytest.raises(DatabaseAway, match="nowhere"):
        async with opened(postgres.url("nowhere")):
            pass


async def test_tables_of_somebody_else_are_left_alone(postgres: PostgresServer):
    url = postgres.new_database()
    postgres.sql("CREATE SCHEMA identity; CREATE TABLE identity.theirs ()", url=url)
    with pytest.raises(Conflict, match="not Postroom's"):
        async with opened(url):
            pass


async def test_a_schema_of_a_newer_postroom_is_refused(url: str):
    async with opened(url, "newer") as database:
        newer = "UPDATE alembic_version SET version_num = '9999'"
        await database.write(lambda store: store.session.driver.execute(newer))
    with pytest.raises(EnvironmentFault, match="9999"):
        async with opened(url, "newer"):
            pass


LATER = """
import sqlalchemy as sa
from alembic import op
from postroom.store.migrate import holds

revision, down_revision = "9000", "{before}"


def upgrade():
    if holds("messages"):
        op.add_column("messages", sa.Column("later", sa.Integer(), server_default=sa.text("7")))
        with op.batch_alter_table("posts") as table:
            table.add_column(sa.Column("word", sa.Text(), server_default=sa.text("''")))
            table.drop_column("text")
    if holds("agents"):
        with op.batch_alter_table("agents") as table:
            table.alter_column("skeleton", new_column_name="look")
"""
COLUMNS = """
SELECT data_type, collation_name FROM information_schema.columns
WHERE table_schema = current_schema AND column_name IN ('later', 'word') ORDER BY column_name
"""


async def test_a_later_version_changes_what_all_organisations_share_once(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    url = postgres.new_database()
    bob = replace(BOB, org="second", uid="2" * 32)
    async with opened(url) as first, opened(url, "second") as second:
        await first.write(add(BOB))
        await second.write(add(bob))
    shutil.copytree(migrating.MIGRATIONS, tmp_path / "migrations")
    later = tmp_path / "migrations" / "versions" / "9000_later.py"
    later.write_text(LATER.format(before=migrating.REVISION))
    monkeypatch.setattr(migrating, "MIGRATIONS", tmp_path / "migrations")
    for changed in (migrating, placing):
        monkeypatch.setattr(changed, "REVISION", "9000")
    monkeypatch.setattr(placing.tables, "views", views_of_later)
    for org, uid in (("default", BOB.uid), ("second", bob.uid)):
        async with opened(url, org) as database:
            assert await database.read(say("SELECT uid FROM agents WHERE look = 'bob'")) == [(uid,)]
            assert await database.read(say(COLUMNS)) == [("bigint", None), ("text", "C")]


def views_of_later(org: str) -> list[str]:
    return [statement.replace("skeleton", "look") for statement in views(org)]


async def test_a_removed_organisation_keeps_what_it_had_and_leaves_its_name(url: str):
    bob = replace(BOB, org="removed", uid="9" * 32)
    async with opened(url, "removed") as database:
        await database.write(add(bob))
        place = database.place
        assert isinstance(place, PostgresPlace)
        place.set_aside(12.5)
    async with opened(url, "removed") as database:
        assert await database.read(lambda store: store.agents.agent_by_uid(bob.uid)) is None
        await database.write(add(replace(bob, uid="8" * 32)))
    async with Database(PostgresPlace(Address.parse(url), "removed~12")) as database:
        found = await database.read(lambda store: store.agents.agent_by_uid(bob.uid))
        assert found == replace(bob, org="removed~12")


def test_each_organisation_has_a_schema_of_its_own_within_postgresqls_bound():
    names = ["a", "a-b", "a_b", "x" * 59, "x" * 60, "x" * 64, "x" * 63 + "y"]
    schemas = [schema_of(name) for name in names]
    assert schemas[:4] == [f"org_{name}" for name in names[:4]]
    assert len(set(schemas)) == len(names)
    assert all(len(schema) <= 63 for schema in schemas)


def test_every_text_has_the_collation_of_sqlite_and_every_number_room():
    for statement in (*shared_tables(), *org_tables()):
        for line in statement.splitlines():
            assert " INTEGER" not in line
            assert " SERIAL" not in line.upper()
            if " TEXT" in line and "CREATE" not in line:
                assert 'COLLATE "C"' in line
