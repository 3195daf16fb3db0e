"""Runs statements: one thread that writes, a few that read.

SQLite has one writer at a time in any case, so one thread with its own connection is the simplest and the fastest way
to write from asyncio (a pool of connections spends its time waiting for the lock).

WAL lets readers go on while it writes. `synchronous` is FULL, not NORMAL: the projection could be folded again after
a power cut, but agents and keys exist only here, and a key that was handed out must still exist. The fold commits in
batches, which pays for it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool, StaticPool

from postroom.errors import EnvironmentFault, Refused, RequestTimeout, StateUnwritable, StoreLocked

__all__ = ["Connection", "Database", "DatabaseStatistics"]

T = TypeVar("T")

BUSY_TIMEOUT = 5.0
"""Seconds that SQLite waits for another process's lock (a backup, `sqlite3` in a shell)."""

READERS = 2
QUEUE_LIMIT = 1024
"""The most calls that wait for a thread; further ones are refused."""

CALL_TIMEOUT = 30.0
"""Seconds from the call to its result."""


@dataclass(frozen=True, slots=True)
class DatabaseStatistics:
    """Counters since the database was opened."""

    writes: int = 0
    reads: int = 0
    waiting: int = 0


class Database:
    """A SQLite database for asyncio code.

    Args:
        path: of the file, None for a database in memory, where reads take turns with writes.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._writer = _engine(path, writes=True)
        self._reader = self._writer if path is None else _engine(path, writes=False)
        self._write_thread = ThreadPoolExecutor(1, "store-write")
        self._read_threads = (
            self._write_thread if path is None else ThreadPoolExecutor(READERS, "store-read")
        )
        self._waiting = 0
        self._writes = 0
        self._reads = 0

    async def __aenter__(self) -> Self:
        """The database itself; leaving the block closes it."""
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction in the writer's thread; on return all of it is on disk, after an error
        nothing.

        Raises:
            StateUnwritable: the disk is full or read-only.
            StoreLocked: another process holds the database.
            Refused: too many calls wait.
            RequestTimeout: it took longer than `CALL_TIMEOUT`; perhaps it was committed.
        """
        self._writes += 1
        return await self._run(self._write_thread, self._writer, work)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on one consistent view; a file's reading connections cannot write.

        Raises:
            Refused: too many calls wait.
            RequestTimeout: it took longer than `CALL_TIMEOUT`.
        """
        self._reads += 1
        return await self._run(self._read_threads, self._reader, work)

    async def outside_transaction(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in the writer's thread with autocommit, for `VACUUM` and `ATTACH`."""
        return await self._run(self._write_thread, self._writer, work, autocommit=True)

    async def close(self) -> None:
        """Finish the running calls and close the file; idempotent."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._read_threads.shutdown()
        self._write_thread.shutdown()
        self._reader.dispose()
        self._writer.dispose()

    def statistics(self) -> DatabaseStatistics:
        """Counters since the database was opened."""
        return DatabaseStatistics(self._writes, self._reads, self._waiting)

    async def _run(
        self,
        threads: ThreadPoolExecutor,
        engine: Engine,
        work: Callable[[Connection], T],
        *,
        autocommit: bool = False,
    ) -> T:
        if self._waiting >= QUEUE_LIMIT:
            raise Refused("too many calls wait for the database", remedy="try again in a moment")
        self._waiting += 1
        call = asyncio.get_running_loop().run_in_executor(threads, _call, engine, work, autocommit)
        try:
            # Not `wait_for`: before Python 3.12 it loses a cancellation that comes together with the result.
            async with asyncio.timeout(CALL_TIMEOUT):
                return await call
        except TimeoutError as error:
            raise RequestTimeout("the database did not answer in time") from error
        finally:
            self._waiting -= 1


def _call(engine: Engine, work: Callable[[Connection], T], autocommit: bool) -> T:
    with typed_faults():
        if autocommit:
            with engine.connect() as connection:
                return work(connection.execution_options(postroom_autocommit=True))
        with engine.begin() as connection:
            return work(connection)


def _engine(path: Path | None, *, writes: bool) -> Engine:
    pool: dict[str, Any] = (
        {"poolclass": StaticPool}
        if path is None
        else {"poolclass": QueuePool, "pool_size": 1 if writes else READERS, "max_overflow": 0}
    )
    engine = create_engine(
        f"sqlite:///{path or ':memory:'}",
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT, "isolation_level": None},
        **pool,
    )
    pragmas = ["foreign_keys = ON"]
    if path is not None:
        pragmas += ["journal_mode = WAL", "synchronous = FULL"] if writes else ["query_only = ON"]

    def prepare(connection: Any, _record: object) -> None:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    # The driver is in autocommit mode, so that we begin each transaction. A writer takes the lock at once
    # (IMMEDIATE), or its first read could show a state that another process changes before the write.
    def begin(connection: Connection) -> None:
        if not connection.get_execution_options().get("postroom_autocommit"):
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


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
    """Turn faults of disk and lock into `EnvironmentFault`; every other error passes unchanged.

    Raises:
        StateUnwritable: the disk is full or read-only, or the file cannot be opened.
        StoreLocked: another process holds the database.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        original = error.orig if isinstance(error, DBAPIError) else error
        fault = environment_fault(original)
        if fault is None:
            raise
        raise fault from error
