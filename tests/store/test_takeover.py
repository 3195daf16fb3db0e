"""What versions before had in files of each organisation moves into the installation's accounts, once and whole."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import MetaData

from postroom.errors import Conflict
from postroom.store import copying, schema, snapshot
from postroom.store import migrate as migrating
from postroom.store import sqlite as module
from postroom.store.copied_tables import copy_tables
from postroom.store.database import Database
from postroom.store.migrate import migrate
from postroom.store.session import Session
from postroom.store.snapshot import SnapshotHeader
from postroom.store.sqlite import IDENTITY_FILE, OLD_FILE, SQLitePlace, altering

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("store-accounts-moved")]

ORGS = ("default", "acme")
IDENTITY = ("agents", "workers", "memberships", "api_keys", "credentials", "blobs", "blob_readers")
WORKER = "INSERT INTO workers VALUES ('{u}', 'main', '', '{{}}', '{{}}', '', '', 'running', 't{u}', 1, 0, '', '{{}}')"


def fill(driver: sqlite3.Connection, org: str) -> None:
    for uid in (f"{org}1", f"{org}2"):
        for sql in (
            f"INSERT INTO agents VALUES ('{uid}', '{org}', 'n{uid}', 'worker', 's{uid}', x'00', 1.0, NULL)",
            WORKER.format(u=uid),
            f"INSERT INTO memberships VALUES ('{uid}', 'main'), ('{uid}', 'other')",
            f"INSERT INTO api_keys VALUES ('k{uid}', '{uid}', 'h{uid}', 1.0, NULL)",
            f"INSERT INTO credentials VALUES ('U{uid}', '{uid}', 9.0)",
            f"INSERT INTO credentials VALUES ('V{uid}', 'of nobody', 9.0)",
            f"INSERT INTO blobs VALUES ('{uid}', 1, '', 1.0, 1.0, 0)",
            f"INSERT INTO blob_readers VALUES ('{uid}', 'r')",
        ):
            driver.execute(sql)


def one_file(home: Path, org: str, revision: str) -> Path:
    """A file with all tables, as the first versions had it."""
    home.mkdir(parents=True, exist_ok=True)
    file = home / OLD_FILE
    with closing(sqlite3.connect(file, isolation_level=None)) as driver:
        driver.execute("PRAGMA journal_mode = WAL")
        altering(driver, partial(migrating.upgrade, revision=revision))
        fill(driver, org)
    return file


def two_files(home: Path, org: str) -> None:
    """What the version before this one had."""
    old = one_file(home, org, "0010")
    with closing(sqlite3.connect(old, isolation_level=None)) as driver:
        copy_tables(driver, home / IDENTITY_FILE, IDENTITY)
        for table in reversed(IDENTITY):
            driver.execute(f"DROP TABLE {table}")
    old.rename(home / "projection.db")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """State folders of versions before, with two organisations."""
    folder = tmp_path_factory.mktemp("before")
    for org in ORGS:
        two_files(home_of(folder / "two", org), org)
        one_file(home_of(folder / "one", org), org, "0007")
    return {name: folder / name for name in ("one", "two")}


def home_of(state: Path, org: str) -> Path:
    return state if org == "default" else state / "orgs" / org


def place_of(state: Path, org: str) -> SQLitePlace:
    return SQLitePlace(
        home_of(state, org) / "projection.db", org=org, accounts=state / "accounts.db"
    )


def take_over(state: Path, orgs: Sequence[str] = ORGS) -> None:
    """What the first start of this version does, in one thread."""
    for org in orgs:
        place = place_of(state, org)
        place.before()
        for part in place.parts:
            place.alter(part, partial(migrating._migrate, place=place, part=part))
        place.after()


NUMBERS = {
    "agents": 2,
    "workers": 2,
    "memberships": 4,
    "api_keys": 2,
    "agent_cards": 0,
    "credentials": 4,
    "blobs": 2,
    "blob_readers": 2,
}


def check_rows(place: SQLitePlace) -> None:
    with closing(place.connect(writes=False)) as connection:
        for table, number in NUMBERS.items():
            rows = connection.session.driver.execute(f"SELECT * FROM {table}").fetchall()
            assert len(rows) == number, table
            assert table.startswith("blob") or all(place.org in row for row in rows), table


def check(state: Path, orgs: Sequence[str] = ORGS) -> None:
    """Whether each of `orgs` has all that it had, once, and its files are the present ones."""
    for org in orgs:
        check_rows(place_of(state, org))
        names = {path.name for path in home_of(state, org).iterdir() if path.is_file()}
        own = {"blobs.db", "projection.db"} | ({"accounts.db"} if org == "default" else set())
        assert {name for name in names if not name.endswith(("-wal", "-shm"))} == own
    with closing(sqlite3.connect(state / "accounts.db")) as driver:
        assert driver.execute("SELECT count(*) FROM agents").fetchone() == (2 * len(orgs),)
        homes = {("acme", "orgs/acme"), ("default", ".")}
        assert set(driver.execute("SELECT org, schema FROM orgs")) == {
            home for home in homes if home[0] in orgs
        }


class Killed:
    """Ends this process at the `number`th step: a statement, or the renaming or deletion of a file."""

    def __init__(self, number: int) -> None:
        self._left = number
        killed = self

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                if sql.startswith(("BEGIN", "COMMIT", "DROP", "INSERT INTO orgs")):
                    killed.step()
                return super().execute(sql, *values)

            def commit(self) -> None:
                killed.step()
                super().commit()

        self._connect = partial(sqlite3.connect, factory=Connection)

    def step(self) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def connect(self, *args: Any) -> sqlite3.Connection:
        file, timeout, detect, isolation = args
        return self._connect(file, timeout, detect, isolation)

    def before(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **more: Any) -> Any:
            self.step()
            return work(*args, **more)

        return stepping


ORG = "acme"


def ended_at(step: int, state: Path) -> bool:
    """Take over in a child that is killed before that step; False if it had no such step."""
    child = os.fork()
    if not child:
        code = 1
        try:
            killed = Killed(step)
            sqlite3.connect = killed.connect  # ty: ignore[invalid-assignment]
            for name in ("replace", "unlink"):
                setattr(Path, name, killed.before(getattr(Path, name)))
            take_over(state, [ORG])
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status == signal.SIGKILL


@pytest.mark.parametrize("version", [pytest.param("one", marks=pytest.mark.slow), "two"])
def test_a_kill_at_any_step_loses_nothing_and_doubles_nothing(
    version: str, before: dict[str, Path], tmp_path: Path
):
    for step in count(1):
        state = tmp_path / str(step)
        shutil.copytree(before[version], state)
        if not ended_at(step, state):
            break
        take_over(state, [ORG])
        check(state, [ORG])
        shutil.rmtree(state)
    assert step > 12
    check(state, [ORG])
    take_over(state)
    check(state)


async def test_a_second_start_takes_over_nothing_more(before: dict[str, Path], tmp_path: Path):
    state = tmp_path / "state"
    shutil.copytree(before["two"], state)
    take_over(state)
    async with Database(place_of(state, "acme")) as database:
        await database.write(lambda store: store.agents.retire_agent("acme1", 2.0))
    shutil.copy(home_of(before["two"], "acme") / IDENTITY_FILE, home_of(state, "acme"))
    take_over(state)  # as if it had been killed before it deleted what it had moved
    async with Database(place_of(state, "acme")) as database:
        agent = await database.read(lambda store: store.agents.agent_by_uid("acme1"))
    assert agent is not None
    assert agent.retired
    check(state)


async def test_a_row_that_two_organisations_have_is_moved_for_one_and_kept_for_the_other(
    before: dict[str, Path], tmp_path: Path
):
    state = tmp_path / "state"
    shutil.copytree(before["two"], state)
    shutil.copy(state / IDENTITY_FILE, home_of(state, "acme"))
    with pytest.raises(Conflict):
        take_over(state)
    assert (home_of(state, "acme") / IDENTITY_FILE).exists()
    async with Database(place_of(state, "default")) as database:
        await migrate(database)
        assert len(await database.read(lambda store: store.agents.all_agents("default"))) == 2
    assert module.ACCOUNTS_FILE in {path.name for path in state.iterdir()}


async def test_the_accounts_in_a_backup_of_a_version_before_are_loaded(tmp_path: Path):
    old = one_file(tmp_path / "old", "default", "0010")
    kept, tables = tmp_path / "default.identity", MetaData()
    with closing(sqlite3.connect(old, isolation_level=None)) as driver:
        altering(driver, tables.reflect)
        session = Session(module.ONE_FILE, driver)
        header = SnapshotHeader("0010", "default", 1.0)
        chosen = [tables.tables[name] for name in IDENTITY]
        snapshot.write(kept, header, chosen, lambda table: copying.rows(session, table))
    async with Database(SQLitePlace(tmp_path / "new.db")) as database:
        await migrate(database)
        await database.write(lambda store: copying.load(store, kept, schema.IDENTITY))
    check_rows(SQLitePlace(tmp_path / "new.db"))
