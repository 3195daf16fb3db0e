"""The SQLite database: two files, and what else differs from PostgreSQL.

Identity is in the main file, the projection in another one, which every connection attaches. WAL lets readers go on
while one writes. A commit that changed identity is on disk before it returns (`synchronous` is FULL): a key that was
handed out must still exist after a power cut. A commit of the projection alone is not flushed (NORMAL), since the log
folds it again.

SQLite commits one file after the other, the main one first. So a crash between the two may lose the projection's half,
which is folded again, and never that of identity.
"""

from __future__ import annotations

import importlib
import json
import sqlite3
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy
from sqlalchemy import Table, create_engine
from sqlalchemy.dialects import sqlite as compiling
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from postroom.errors import Conflict, EnvironmentFault, StateUnwritable, StoreLocked
from postroom.store.schema import IDENTITY, PROJECTION, metadata
from postroom.store.session import Session

T = TypeVar("T")

BUSY_TIMEOUT = 5.0
"""Seconds that SQLite waits for another process's lock (a backup, `sqlite3` in a shell)."""

STATEMENTS = 512
"""Statements that a connection keeps parsed."""

IDENTITY_FILE = "identity.db"
"""The file of identity, beside the projection's."""

ATTACHED = "projection"
"""The name of the projection's file on each connection."""


class SQLiteDialect:
    """Implements `session.Dialect`."""

    name = "sqlite"
    bools = False

    def __init__(self) -> None:
        self.compiler = compiling.dialect(paramstyle="qmark")

    def insert(self, table: Table) -> Any:
        """As `session.Dialect`."""
        return compiling.insert(table)

    def listed(self, values: list[Any]) -> str:
        """As `session.Dialect`: JSON, for `json_each`."""
        return json.dumps(values)


DIALECT = SQLiteDialect()


_WRITES = (
    "main.journal_mode = WAL",
    f"{ATTACHED}.journal_mode = WAL",
    "main.synchronous = FULL",
    f"{ATTACHED}.synchronous = NORMAL",
)
_READS = ("query_only = ON",)


class SQLiteConnection:
    """Implements `database.StoreConnection`."""

    def __init__(self, path: Path | None, *, writes: bool, timeout: float = BUSY_TIMEOUT) -> None:
        with typed_faults():
            self._driver = sqlite3.connect(
                ":memory:" if path is None else path.with_name(IDENTITY_FILE),
                timeout=timeout,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=STATEMENTS,
            )
            self._driver.execute("PRAGMA foreign_keys = ON")
            if path is not None:
                self._driver.execute(f"ATTACH ? AS {ATTACHED}", (str(path),))
                for setting in _WRITES if writes else _READS:
                    self._driver.execute(f"PRAGMA {setting}")
            if writes and not timeout:
                self._driver.execute("PRAGMA wal_autocheckpoint = 0")
        # A writer that waits takes the lock at once (IMMEDIATE), or its first read could show a state that another
        # process changes before the write. One that does not wait fails then, and locks no file that it leaves alone.
        self._begin = "BEGIN IMMEDIATE" if writes and timeout else "BEGIN"
        self.session = Session(DIALECT, self._driver)

    def run(self, work: Callable[[Session], T], *, flush: bool = True) -> T:
        """As `StoreConnection`; which file changed decides whether the commit is flushed."""
        del flush
        with typed_faults():
            self._driver.execute(self._begin)
            try:
                done = work(self.session)
            except BaseException:
                self._rollback()
                raise
            try:
                self._driver.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise
            return done

    def _rollback(self) -> None:
        if self._driver.in_transaction:  # after some faults SQLite has done it itself
            self._driver.execute("ROLLBACK")

    @contextmanager
    def viewing(self) -> Generator[None]:
        """As `StoreConnection`."""
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
        """As `StoreConnection`."""
        self._driver.close()


class SQLitePlace:
    """Implements `database.Place`.

    Args:
        path: file of the projection; None for a database in memory, which is one connection.
        timeout: seconds that a connection waits for another process's lock, where it is not told otherwise.
    """

    def __init__(self, path: Path | None, timeout: float = BUSY_TIMEOUT) -> None:
        self._timeout = timeout
        self.path = path
        self.shared = path is None
        self.inline = path is not None
        self.forgets = False
        self.parts: Mapping[str, Sequence[Table]] = (
            {"": (*IDENTITY, *PROJECTION)}
            if path is None
            else {"identity": IDENTITY, "projection": PROJECTION}
        )
        self._memory = SQLiteConnection(None, writes=True) if path is None else None

    def connect(self, *, writes: bool, timeout: float | None = None) -> SQLiteConnection:
        """As `database.Place`."""
        wait = self._timeout if timeout is None else timeout
        return self._memory or SQLiteConnection(self.path, writes=writes, timeout=wait)

    def alter(self, part: str, work: Callable[[sqlalchemy.Connection], T]) -> T:
        """As `database.Place`."""
        if self._memory is not None:
            return self._memory.alter(work)
        assert self.path is not None  # noqa: S101 (a database without a path is in memory)
        file = self.path if part == "projection" else self.path.with_name(IDENTITY_FILE)
        with typed_faults(), closing(sqlite3.connect(file, BUSY_TIMEOUT, 0, None)) as driver:
            driver.execute("PRAGMA journal_mode = WAL")
            return altering(driver, work)

    def create(self, connection: sqlalchemy.Connection, part: str) -> None:
        """As `database.Place`."""
        metadata.create_all(connection, tables=list(self.parts[part]))

    def close(self) -> None:
        """As `database.Place`."""
        if self._memory is not None:
            self._memory.close()

    def before(self) -> None:
        """As `database.Place`."""
        if self.path is not None:
            importlib.import_module("postroom.store.one_file").split(self.path)


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
            raise Conflict(f"the database refuses the row: {original}") from error
        raise
