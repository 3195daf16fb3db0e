"""What the version before the last migration has written is opened: its databases, its backup, its PostgreSQL.

`before` holds it as that version wrote it: a post room with the organisations `default` and `acme`, an agent @ext and a
message to it.
"""

from __future__ import annotations

import asyncio
import tarfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from postroom.backup.restoring import restore
from postroom.settings import Settings
from postroom.store import copying, kept
from postroom.store.database import Database, Store
from postroom.store.migrate import migrate
from postroom.store.ports import Place
from postroom.store.postgres.connection import Address
from postroom.store.postgres.place import PostgresPlace
from postroom.store.schema import REVISION
from postroom.store.sessions import SessionRow
from postroom.store.sqlite import SQLitePlace
from tests.postgres import PostgresServer

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("store-older-refused")]

BEFORE = Path(__file__).parent / "before"
PASSPHRASE = "correct horse battery"


@pytest.fixture
def databases(tmp_path: Path) -> Path:
    """A folder with the databases of before."""
    with tarfile.open(BEFORE / "0018.databases.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def place(folder: Path, org: str = "default") -> SQLitePlace:
    home = folder if org == "default" else folder / "orgs" / org
    return SQLitePlace(home / "projection.db", org=org, accounts=folder / "accounts.db")


@asynccontextmanager
async def opened(where: Place) -> AsyncGenerator[Database]:
    async with Database(where) as database:
        await migrate(database)
        yield database


def nicks(store: Store, org: str = "default") -> list[str]:
    return [agent.nick for agent in store.agents.all_agents(org)]


def with_a_session(store: Store) -> SessionRow | None:
    (owner,) = [agent for agent in store.agents.all_agents("default") if agent.kind == "human"]
    ext = store.agents.agent_by_nick("default", "ext")
    assert ext is not None
    row = SessionRow(ext.uid, owner.uid, "claude", "k", "/srv", "", "2", "idle", 1.0, 1.0)
    store.sessions.add(row)
    return store.sessions.get(ext.uid)


async def test_databases_of_before_are_brought_up_and_kept_as_they_were(databases: Path):
    async with opened(place(databases)) as database:
        assert await database.read(nicks) == ["ext", "root"]
        (text,) = await database.read(
            lambda store: [row.text for row in store.messages.search(limit=9)]
        )
        assert text == "hello from before"
        assert await database.write(with_a_session) is not None
        copies = database.place.kept
    assert copies is not None
    assert {kept._version(copy) for copy in copies.iterdir()} == {"0018"}
    async with opened(place(databases, "acme")) as other:
        assert await other.read(lambda store: nicks(store, "acme")) == ["root"]
        assert await other.read(lambda store: store.sessions.all()) == []
    assert kept._version(databases / "accounts.db") == REVISION


async def test_a_backup_of_before_is_restored(tmp_path: Path):
    state = tmp_path / "state"
    await asyncio.to_thread(restore, Settings(state=state), BEFORE / "0018.backup", PASSPHRASE)
    async with opened(place(state)) as database:
        assert await database.read(nicks) == ["ext", "root"]
        assert await database.write(with_a_session) is not None
    last = copying.last(state / "snapshots")
    assert last is not None
    assert copying.verify(last).revision == REVISION


async def test_a_postgresql_of_before_is_brought_up_by_whichever_organisation_comes_first(
    postgres: PostgresServer,
):
    url = postgres.new_database()
    script = (BEFORE / "0018.postgres.sql").read_text(encoding="utf-8")
    postgres.sql(f"BEGIN; {script} COMMIT", url=url)
    for uid, org, nick, kind in (
        ("a" * 32, "default", "root", "human"),
        ("b" * 32, "default", "ext", "external"),
        ("c" * 32, "acme", "eve", "human"),
    ):
        columns = "(uid, org, nick, kind, skeleton, message_secret, created_at)"
        values = f"('{uid}', '{org}', '{nick}', '{kind}', '{nick}', 'x', 1)"
        postgres.sql(f"INSERT INTO identity.agents {columns} VALUES {values}", url=url)
    async with opened(PostgresPlace(Address.parse(url), "acme")) as database:
        assert await database.read(lambda store: nicks(store, "acme")) == ["eve"]
    async with opened(PostgresPlace(Address.parse(url), "default")) as database:
        assert await database.read(nicks) == ["ext", "root"]
        assert await database.write(with_a_session) is not None
    async with opened(PostgresPlace(Address.parse(url), "acme")) as database:
        assert await database.read(lambda store: store.sessions.all()) == []
