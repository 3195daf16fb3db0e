"""The SQLite database: three files, and what else differs from PostgreSQL.

    blobs.db        the organisation's blobs and their readers; the main file of its connections
    accounts.db     the accounts of the installation, which every connection attaches as `identity` (`own_rows`)
    projection.db   the organisation's projection, attached as `projection`

WAL lets readers go on while one writes. What changed the first two is on disk before the commit returns (`synchronous`
is FULL): a key that was handed out must still exist after a power cut. A commit of the projection alone is not flushed
(NORMAL), since the log folds it again. A file without a change is neither written nor flushed.

SQLite commits one file after the other, in the order above. So a crash between two of them may lose the projection's
part, which is folded again. No transaction changes both accounts and blobs.

The organisations of an installation write one after the other to accounts, so a transaction takes that lock first and
only if it is meant to change accounts. A fold never waits for it.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import Table, create_engine
from sqlalchemy.dialects import sqlite as compiling
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool
from sqlalchemy.sql import ClauseElement

from postroom.disk import sync
from postroom.errors import Conflict, EnvironmentFault, StateUnwritable, StoreLocked
from postroom.settings import DEFAULT_ORG
from postroom.store.kept import FOLDER, keep
from postroom.store.own_rows import REFUSED, naming_tables, own_rows
from postroom.store.ports import Place, StoreConnection
from postroom.store.schema import (
    ACCOUNTS,
    BLOBS,
    PROJECTION,
    SHARED,
    check_revision,
    metadata,
    orgs,
)
from postroom.store.search import INDEXES
from postroom.store.session import Dialect, Driver, Session

T = TypeVar("T")

BUSY_TIMEOUT = 5.0
"""Seconds that SQLite waits for another process's lock (a backup, `sqlite3` in a shell)."""

STATEMENTS = 512
"""Statements that a connection keeps parsed."""

ACCOUNTS_FILE = "accounts.db"
BLOBS_FILE = "blobs.db"

OLD_FILES = ("identity.db", "postroom.db")
"""What there was in place of them before `schema.FIRST_REVISION`."""

_PRIVATE = ":memory:"

ATTACHED = "projection"
"""The name of the projection's file on each connection."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where an organisation has its rows, by the name of the part."""

    accounts: Path
    blobs: Path
    projection: Path

    @classmethod
    def beside(cls, projection: Path, accounts: Path | None = None) -> Files:
        """Those of the organisation with that projection."""
        shared = projection.with_name(ACCOUNTS_FILE) if accounts is None else accounts
        return cls(shared, projection.with_name(BLOBS_FILE), projection)


class SQLiteDialect(Dialect):
    """Implements `session.Dialect`."""

    bools = False

    def __init__(self, name: str = "sqlite") -> None:
        self.name = name
        self.compiler = compiling.dialect(paramstyle="qmark")

    def insert(self, table: Table) -> Any:
        return compiling.insert(table)

    def listed(self, values: list[Any]) -> str:
        """As `session.Dialect`: JSON, for `json_each`."""
        return json.dumps(values)

    def completed(self, statement: ClauseElement, sql: str) -> str:
        return naming_tables(statement, sql)


class _OneFileDialect(SQLiteDialect):
    def completed(self, statement: ClauseElement, sql: str) -> str:
        del statement
        return sql


DIALECT = SQLiteDialect()

ONE_FILE = _OneFileDialect("sqlite-one-file")
"""Of a file that has all tables, whatever organisation its rows are of."""

_ALWAYS = (
    "foreign_keys = ON",
    "temp_store = MEMORY",
    # Otherwise INSERT OR REPLACE would delete a row past the triggers of `own_rows`.
    "recursive_triggers = ON",
)
_WRITES = (
    "main.journal_mode = WAL",
    f"{SHARED}.journal_mode = WAL",
    f"{ATTACHED}.journal_mode = WAL",
    "main.synchronous = FULL",
    f"{SHARED}.synchronous = FULL",
    f"{ATTACHED}.synchronous = NORMAL",
)
# Each takes the lock of a file, and changes nothing in it.
_LOCK_ACCOUNTS = f"DELETE FROM {SHARED}.{orgs.name} WHERE 0"  # noqa: S608 (our own names)
_LOCK_OWN = ("DELETE FROM blobs WHERE 0", "DELETE FROM cursors WHERE 0")


class SQLiteConnection(StoreConnection):
    """Implements `database.StoreConnection`.

    Args:
        files: None for a database in memory; its own rows are shown once it has tables (`show_own_rows`).
        accounts: with a database in memory, the address of those of the installation.
    """

    tasks = task_tables = None

    def __init__(
        self,
        files: Files | None,
        *,
        writes: bool,
        org: str = "",
        timeout: float = BUSY_TIMEOUT,
        accounts: str = _PRIVATE,
    ) -> None:
        with typed_faults():
            self._driver = sqlite3.connect(
                _PRIVATE if files is None else files.blobs,
                timeout=timeout,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=STATEMENTS,
                uri=files is None,
            )
            for setting in _ALWAYS:
                self._driver.execute(f"PRAGMA {setting}")
            shared = accounts if files is None else str(files.accounts)
            self._driver.execute(f"ATTACH ? AS {SHARED}", (shared,))
            if files is not None:
                self._driver.execute(f"ATTACH ? AS {ATTACHED}", (str(files.projection),))
                for setting in _WRITES if writes else ():
                    self._driver.execute(f"PRAGMA {setting}")
                self.show_own_rows(org)
                if not writes:
                    self._driver.execute("PRAGMA query_only = ON")
                elif not timeout:
                    self._driver.execute("PRAGMA wal_autocheckpoint = 0")
        # A writer that waits takes its locks at once, or its first read could show a state that another connection
        # changes before the write. One that does not wait fails then, and locks no file that it leaves alone.
        self._locks = writes and bool(timeout)
        self.session = Session(DIALECT, self._driver)

    def run(self, work: Callable[[Session], T], *, flush: bool = True, accounts: bool = True) -> T:
        """As `StoreConnection`; which file changed decides whether the commit is flushed."""
        with typed_faults():
            self._driver.execute("BEGIN")
            try:
                if self._locks:
                    self._lock(accounts=accounts and flush)
                done = work(self.session)
                self._driver.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise
            return done

    def show_own_rows(self, org: str) -> None:
        """Let the statements mean the rows of `org` alone; the tables of accounts exist."""
        for statement in own_rows(org):
            self._driver.execute(statement)

    def _lock(self, *, accounts: bool) -> None:
        # That of accounts first: whoever waits for it holds up no fold.
        if accounts:
            self._driver.execute(_LOCK_ACCOUNTS)
        for statement in _LOCK_OWN:
            self._driver.execute(statement)

    def _rollback(self) -> None:
        if self._driver.in_transaction:  # after some faults SQLite has done it itself
            self._driver.execute("ROLLBACK")

    @contextmanager
    def viewing(self) -> Generator[None]:
        with typed_faults():
            self._driver.execute("BEGIN")
            try:
                yield
            finally:
                self._rollback()

    def alter(self, work: Callable[[sqlalchemy.Connection], T]) -> T:
        """As `Place.alter`, on this connection."""
        with typed_faults():
            return altering(self._driver, work)

    def close(self) -> None:
        self._driver.close()


class SQLitePlace(Place):
    """Implements `ports.Place`.

    Args:
        path: file of the projection; None for a database in memory, which is one connection.
        timeout: seconds that a connection waits for another process's lock, where it is not told otherwise.
        accounts: file of the accounts, beside the projection if none is named.
        installation: with a database in memory, the name under which the organisations of an installation share
            their accounts; "" for none.

    Attributes:
        kept: the folder with what a migration has changed, as it was; None if there was none.
    """

    kept: Path | None = None

    def __init__(
        self,
        path: Path | None,
        timeout: float = BUSY_TIMEOUT,
        *,
        org: str = DEFAULT_ORG,
        accounts: Path | None = None,
        installation: str = "",
    ) -> None:
        self._timeout = timeout
        self.path = path
        self.org = org
        self.files = None if path is None else Files.beside(path, accounts)
        self.shared = path is None
        self.inline = path is not None
        self.forgets = False
        shared = (*ACCOUNTS, orgs)
        self.parts: Mapping[str, Sequence[Table]] = (
            {"": (*shared, *BLOBS, *PROJECTION)}
            if path is None
            else {"accounts": shared, "blobs": BLOBS, "projection": PROJECTION}
        )
        self._memory = (
            SQLiteConnection(None, writes=True, accounts=_in_memory(installation))
            if path is None
            else None
        )

    @property
    def folder(self) -> str:
        """Where the organisation has its own files, as `orgs` says it."""
        assert self.files is not None  # noqa: S101 (a database in memory is in no folder)
        return os.path.relpath(self.files.projection.parent, self.files.accounts.parent)

    def connect(self, *, writes: bool, timeout: float | None = None) -> SQLiteConnection:
        wait = self._timeout if timeout is None else timeout
        return self._memory or SQLiteConnection(
            self.files, writes=writes, org=self.org, timeout=wait
        )

    def alter(self, part: str, work: Callable[[sqlalchemy.Connection], T]) -> T:
        with _ALTERING:
            if self._memory is not None:
                return self._memory.alter(work)
            with self.opened(part) as driver:
                return altering(driver, work)

    @contextmanager
    def opened(self, part: str) -> Generator[sqlite3.Connection]:
        """A connection to the file of `part` alone."""
        with (
            typed_faults(),
            closing(sqlite3.connect(getattr(self.files, part), BUSY_TIMEOUT, 0, None)) as driver,
        ):
            driver.execute("PRAGMA journal_mode = WAL")
            driver.execute("PRAGMA synchronous = FULL")
            yield driver

    def create(self, connection: sqlalchemy.Connection, part: str) -> None:
        if self._memory is None:
            metadata.create_all(connection, tables=list(self.parts[part]))
            if part == "projection":
                _make_indexes(connection)
            return
        metadata.create_all(connection, tables=[*BLOBS, *PROJECTION])
        _make_indexes(connection)
        connection.execution_options(schema_translate_map={None: SHARED})
        metadata.create_all(connection, tables=[*ACCOUNTS, orgs])
        connection.execution_options(schema_translate_map={})
        self._memory.show_own_rows(self.org)

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()

    def before(self) -> None:
        if self.files is None:
            return
        for old in map(self.files.projection.with_name, OLD_FILES):
            if old.exists():
                check_revision(str(old), "")
        home = self.files.projection
        files = (self.files.accounts, self.files.blobs, home)
        self.kept = keep(files, home.with_name(FOLDER)) or self.kept

    def after(self) -> None:
        if self.files is None:
            return
        with self.opened("accounts") as driver:
            if not driver.execute("SELECT 1 FROM orgs WHERE org = ?", (self.org,)).fetchone():
                driver.execute("INSERT INTO orgs VALUES (?, ?)", (self.org, self.folder))

    def set_aside(self, at: float) -> None:
        """As `postgres.place.PostgresPlace`; the files of the organisation are the caller's to move."""
        del at
        if self.files is None or self.files.accounts.exists():
            _take_out(self)

    @contextmanager
    def all_accounts(self) -> Generator[tuple[Any, str]]:
        """A connection that has all rows of accounts, and under which schema."""
        if self._memory is not None:
            yield self._memory.session.driver, SHARED
            return
        with self.opened("accounts") as driver:
            yield driver, "main"


def _make_indexes(connection: sqlalchemy.Connection) -> None:
    for index in INDEXES:
        for statement in index.tables("sqlite"):
            connection.exec_driver_sql(statement)


_ALTERING = threading.Lock()
"""Several organisations may come to the file of accounts at the same time, also while it is made."""


def _in_memory(installation: str) -> str:
    """The address of the accounts in memory; before SQLite 3.36 no two connections can share them."""
    if not installation or sqlite3.sqlite_version_info < (3, 36):
        return _PRIVATE
    return f"file:/{quote(installation, safe='')}?vfs=memdb"


def altering(driver: sqlite3.Connection, work: Callable[[sqlalchemy.Connection], T]) -> T:
    """Run `work` in one transaction of `driver`, on a connection of SQLAlchemy's."""
    engine = create_engine(
        "sqlite://", creator=lambda: driver, poolclass=StaticPool, pool_reset_on_return=None
    )
    driver.execute("PRAGMA foreign_keys = OFF")  # a migration may take a table away for a moment
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            done = work(connection)
            connection.commit()
        except BaseException:
            connection.rollback()
            raise
        finally:
            driver.execute("PRAGMA foreign_keys = ON")
    return done


_UNWRITABLE = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "the database is read-only",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_PERM: "the database may not be opened",
}
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_BROKEN = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def environment_fault(error: BaseException | None) -> EnvironmentFault | None:
    """The fault of the machine behind `error`, or None if the error is a bug."""
    # An extended code (SQLITE_IOERR_FSYNC, …) keeps the primary one in its low byte.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _UNWRITABLE:
        return StateUnwritable(
            f"{_UNWRITABLE[code]}: nothing was changed",
            remedy="make room, or check the state folder's owner",
        )
    if code in _LOCKED:
        return StoreLocked("another process holds the database")
    if code in _BROKEN:
        return EnvironmentFault("the database file is damaged", remedy="postroom admin rebuild")
    if "no such module: fts5" in str(error):
        return EnvironmentFault(
            "the SQLite of this Python has no full-text search (FTS5)",
            remedy="use a Python whose SQLite has it, as those of python.org, uv and Debian",
        )
    return None


@contextmanager
def typed_faults() -> Generator[None, None, None]:
    """Turn faults of disk and lock into `EnvironmentFault`, and a broken rule of the tables into `Conflict`.

    Raises:
        StateUnwritable: the disk is full or read-only, or the file cannot be opened.
        StoreLocked: another process holds the database.
        Conflict: a row breaks a unique index or a foreign key.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        original = error.orig if isinstance(error, DBAPIError) else error
        fault = environment_fault(original)
        if fault is not None:
            raise fault from error
        if isinstance(original, sqlite3.IntegrityError):
            if REFUSED in str(original):  # a bug
                raise RuntimeError(f"SQLite refuses {original}") from error
            raise Conflict(f"the database refuses the row: {original}") from error
        raise


# ── a removed organisation ───────────────────────────────────────────────────────────────────────────────

_OF_ACCOUNTS = (*(table.name for table in ACCOUNTS), orgs.name)


def _take_out(place: SQLitePlace) -> None:
    """Take the rows of a removed organisation, that of `place`, out of the accounts; those in memory are forgotten.

    They go into its own folder, which is kept for a person to read and delete: a file `accounts.db` of its rows alone.
    That is on disk before they are deleted where they were, so both can be repeated after a crash.

    Raises:
        StateUnwritable: the disk is full or read-only.
        StoreLocked: another process holds the database.
    """
    with place.all_accounts() as (driver, schema):
        if not _has_rows(driver, schema, place.org):
            return
        if place.files is not None:
            home = place.files.projection.parent
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            _copy_rows(driver, home / ACCOUNTS_FILE, place.org)
        driver.execute("BEGIN IMMEDIATE")
        for name in (*reversed(_OF_ACCOUNTS[:-1]), orgs.name):
            driver.execute(f"DELETE FROM {schema}.{name} WHERE org = ?", (place.org,))  # noqa: S608 (our own names)
        driver.execute("COMMIT")


def _copy_rows(driver: Driver, file: Path, org: str) -> None:
    """Copy the rows of `org`, and the version of the tables, to a new `file`: whole and on disk, or not at all."""
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    driver.execute("ATTACH ? AS copy", (str(new),))
    driver.execute("PRAGMA copy.journal_mode = DELETE")
    driver.execute("BEGIN IMMEDIATE")
    for table in ("alembic_version", *_OF_ACCOUNTS):
        shape = "SELECT type, sql FROM main.sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL"
        # Tables before their indexes.
        for kind, sql in driver.execute(f"{shape} ORDER BY type DESC", (table,)).fetchall():
            before, after = sql.split(f"{kind.upper()} ", 1)
            driver.execute(f"{before}{kind.upper()} copy.{after}")
        rows = f"INSERT INTO copy.{table} SELECT * FROM main.{table}"  # noqa: S608
        if table in _OF_ACCOUNTS:
            driver.execute(f"{rows} WHERE org = ?", (org,))
        else:
            driver.execute(rows)
    driver.execute("COMMIT")
    driver.execute("DETACH copy")
    sync(new)
    new.replace(file)
    sync(file.parent)


def _has_rows(driver: Driver, schema: str, org: str) -> bool:
    made = f"SELECT 1 FROM {schema}.sqlite_master WHERE name = ?"  # noqa: S608
    if not driver.execute(made, (orgs.name,)).fetchone():
        return False
    return any(
        driver.execute(f"SELECT 1 FROM {schema}.{name} WHERE org = ? LIMIT 1", (org,)).fetchone()  # noqa: S608
        for name in _OF_ACCOUNTS
    )
