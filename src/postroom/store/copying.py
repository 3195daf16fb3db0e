"""Takes a snapshot of a database that is in use, and puts one in the place of the projection."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Boolean, Table, create_engine, delete, insert, select
from sqlalchemy.pool import NullPool

from postroom.errors import EnvironmentFault, InvalidInput
from postroom.store import snapshot
from postroom.store.database import Connection, Database, typed_faults
from postroom.store.schema import PROJECTION, REVISION
from postroom.store.schema import cursors as positions
from postroom.store.snapshot import CHUNK, SnapshotHeader, TablePart

LEGACY = "snapshot.db"
"""The copy that a Postroom before this format made; `rebuild` still begins from it."""

_SQLITE = b"SQLite format 3\0"


def last(folder: Path) -> Path | None:
    """The last snapshot in `folder`, None if there is none."""
    found = (folder / name for name in (snapshot.NAME, LEGACY))
    return next((path for path in found if path.exists()), None)


def take(
    database: Database,
    path: Path,
    org: str,
    *,
    tables: Sequence[Table] = PROJECTION,
    clock: Callable[[], float] = time.time,
) -> SnapshotHeader:
    """Write a snapshot of `database` to `path` while others write to it. Blocks: call in a thread.

    Raises:
        InvalidInput: the database is in memory.
        StateUnwritable: the disk is full, or not writable; the last snapshot was kept.
        EnvironmentFault: the database or the new snapshot is damaged; the last one was kept.
    """
    with typed_faults(), aside(database) as connection:
        header = SnapshotHeader(REVISION, org, clock(), cursors(connection))
        snapshot.write(path, header, tables, lambda table: connection.execute(select(table)))
    return header


@contextmanager
def aside(database: Database) -> Generator[Connection, None, None]:
    """A read transaction on a connection of its own: it may last longer than any call."""
    if database.path is None:
        raise InvalidInput("a database in memory cannot be copied, so its log cannot be shortened")
    engine = create_engine(
        f"sqlite:///{database.path.as_uri()}?mode=ro&uri=true",
        poolclass=NullPool,
        connect_args={"isolation_level": None},
    )
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        yield connection


def cursors(connection: Connection) -> dict[str, int]:
    """For each stream the sequence up to which all of the projection holds its effect."""
    found: dict[str, int] = {}
    for stream, seq in connection.execute(select(positions.c.stream, positions.c.seq)):
        found[stream] = min(seq, found.get(stream, seq))
    return found


def restore_projection(connection: Connection, path: Path | None) -> None:
    """Replace the projection by the snapshot at `path`, or empty it; identity stays as it is.

    Args:
        connection: in the transaction that does all of it.

    Raises:
        EnvironmentFault: the snapshot is damaged, or cannot become rows of the present tables.
    """
    for table in PROJECTION:
        connection.execute(delete(table))
    if path is not None:
        load(connection, path, PROJECTION)


def load(connection: Connection, path: Path, tables: Sequence[Table]) -> None:
    """Insert the rows of the snapshot at `path` into `tables`, which are empty.

    Raises:
        EnvironmentFault: the snapshot is damaged, or of a newer Postroom.
    """
    by_name = {table.name: table for table in tables}
    with opened(path) as file:
        for part in file.parts(tables):
            connection.execute(insert(by_name[part.table]), part.rows)


class SnapshotRows(Protocol):
    """What a snapshot of either form gives."""

    header: SnapshotHeader

    def parts(self, tables: Iterable[Table]) -> Iterator[TablePart]:
        """The rows of `tables`; the end of the iteration has checked the whole file."""


@contextmanager
def opened(path: Path) -> Generator[SnapshotRows, None, None]:
    """Read a snapshot of either form. Blocks: use it in a thread.

    Raises:
        EnvironmentFault: it is damaged, or a newer Postroom wrote it.
    """
    with path.open("rb") as file:
        legacy = file.read(len(_SQLITE)) == _SQLITE
    with _legacy(path) if legacy else snapshot.opened(path) as found:
        if found.header.revision > REVISION:
            raise EnvironmentFault(
                f"the snapshot has version {found.header.revision}, this Postroom knows {REVISION}",
                remedy="use the newer Postroom that wrote it",
            )
        yield found


def verify(path: Path) -> SnapshotHeader:
    """Check a snapshot of either form; returns its header.

    Raises:
        EnvironmentFault: it is damaged, or a newer Postroom wrote it.
    """
    with opened(path) as found:
        for _ in found.parts(()):
            pass
        return found.header


def header(path: Path) -> SnapshotHeader:
    """The header of a snapshot of either form, whose rows are not checked."""
    with opened(path) as found:
        return found.header


@contextmanager
def _legacy(path: Path) -> Generator[SnapshotRows, None, None]:
    with (
        typed_faults(),
        closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection,
    ):
        yield _LegacyRows(connection, path)


class _LegacyRows:
    """The rows of a copy that is a database of SQLite."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        positions = dict(connection.execute("SELECT stream, seq FROM cursors"))
        self.header = SnapshotHeader(revision, "", path.stat().st_mtime, positions)

    def parts(self, tables: Iterable[Table]) -> Iterator[TablePart]:
        intact = self._connection.execute("PRAGMA integrity_check").fetchone()
        if intact != ("ok",):
            raise EnvironmentFault(f"the snapshot {self._path} is damaged: {intact[0]}")
        for table in tables:
            there = {row[1] for row in self._connection.execute(f"PRAGMA table_info({table.name})")}
            columns = [column for column in table.columns if column.name in there]
            names = ", ".join(column.name for column in columns)
            flags = [at for at, column in enumerate(columns) if isinstance(column.type, Boolean)]
            found = self._connection.execute(f"SELECT {names} FROM {table.name}")  # noqa: S608 (our own names)
            while chunk := list(islice(found, CHUNK)):
                yield TablePart(table.name, [_row(columns, flags, row) for row in chunk])


def _row(columns: Sequence[Any], flags: Sequence[int], row: Sequence[Any]) -> dict[str, Any]:
    values = list(row)
    for at in flags:
        values[at] = bool(values[at])
    return {column.name: value for column, value in zip(columns, values, strict=True)}
