"""A verified copy of the projection, from which the projection can be rebuilt after the log was shortened.

The copy's `cursors` say up to where it holds each stream.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from postroom.errors import EnvironmentFault
from postroom.store.schema import PROJECTION, REVISION
from postroom.store.session import Session
from postroom.store.sqlite import BUSY_TIMEOUT, DIALECT, typed_faults
from postroom.store.store import Store

NAME = "snapshot.db"


def take(database: Path, folder: Path) -> Path:
    """Copy `database` into `folder`, verify the copy, and put it in place of the last one. Blocks: call in a thread.

    Others may write meanwhile. The last copy stays until the new one is verified and on disk.

    Raises:
        StateUnwritable: the disk is full, or not writable.
        EnvironmentFault: the copy is damaged, so the database may be; the last copy was kept.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = folder / (NAME + ".new")
    new.unlink(missing_ok=True)
    with typed_faults(), closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("VACUUM INTO ?", (str(new),))
    verify(new)
    _sync(new)
    kept = folder / NAME
    new.replace(kept)
    _sync(folder)
    return kept


def verify(path: Path) -> None:
    """Check that `path` holds a whole database of the present version.

    Raises:
        EnvironmentFault: it does not.
    """
    with (
        typed_faults(),
        closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection,
    ):
        found = connection.execute("PRAGMA integrity_check").fetchone()
        revision = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    if found != ("ok",):
        raise EnvironmentFault(f"the copy of the database is damaged: {found[0]}")
    if revision != (REVISION,):
        raise EnvironmentFault(f"the copy of the database has another version: {revision[0]}")


@contextmanager
def opened(path: Path) -> Generator[Store]:
    """A copy of the projection, to read. Blocks: use it in a thread."""
    with typed_faults(), closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as copy:
        yield Store(Session(DIALECT, copy))


def restore_projection(projection: Path, path: Path | None) -> None:
    """Replace the projection by the copy at `path`, or empty it. Blocks: call in a thread.

    Args:
        path: of a verified copy, or None.
    """
    with (
        typed_faults(),
        closing(sqlite3.connect(projection, BUSY_TIMEOUT, 0, None)) as connection,
    ):
        if path is not None:
            connection.execute("ATTACH ? AS copy", (str(path),))
        connection.execute("BEGIN IMMEDIATE")
        try:
            for table in PROJECTION:
                connection.execute(f"DELETE FROM main.{table.name}")  # noqa: S608 (our own names)
                if path is not None:
                    names = ", ".join(column.name for column in table.columns)
                    connection.execute(
                        f"INSERT INTO main.{table.name} ({names}) SELECT {names} FROM copy.{table.name}"  # noqa: S608
                    )
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
