"""What SQLite reports, as errors that say who has to act."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError

from postroom.errors import EnvironmentFault, StateUnwritable, StoreLocked

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
    """The fault of the machine behind `error`, or None if it is a mistake of ours."""
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
        StateUnwritable: disk full, read-only, not to be opened.
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
