"""Copies of a database: a snapshot of one that is in use, put in place of the projection; all rows moved into another.

After a move both are compared. It blocks: call it in a thread.
"""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from sqlalchemy import MetaData, Table, bindparam, delete, insert, select, tuple_

from postroom.errors import Conflict, EnvironmentFault
from postroom.store import snapshot
from postroom.store.database import Database, Store
from postroom.store.migrate import upgrade
from postroom.store.ports import TaskTables
from postroom.store.records import PASSED_OVER
from postroom.store.schema import IDENTITY, PROJECTION, REVISION, check_revision, messages
from postroom.store.schema import cursors as positions
from postroom.store.search import INDEXES
from postroom.store.session import Prepared, Session, prepared
from postroom.store.snapshot import SnapshotHeader, SnapshotReader
from postroom.store.sqlite import BUSY_TIMEOUT, ONE_FILE, altering, typed_faults

_OLD = "snapshot.db"
"""What there was in its place before `schema.FIRST_REVISION`."""

PAGE = 500
"""Rows of one query: a driver may hold the whole result of one in memory."""

OF_TASKS = "tasks"
"""Name of the projection of tasks in the table of cursors."""

TASK_STREAMS = ("INBOX", "TASKS")
"""What tasks are folded from; where they have no cursor, nothing of it is folded."""

TABLES = (*IDENTITY, *PROJECTION)
"""Every table, those that others refer to first."""


def last(folder: Path) -> Path | None:
    """The last snapshot in `folder`, None if there is none.

    Raises:
        EnvironmentFault: it has one that is too old to be read.
    """
    kept, old = folder / snapshot.NAME, folder / _OLD
    if kept.exists():
        return kept
    if old.exists():
        check_revision(str(old), "")
    return None


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
    with database.aside() as store:
        elsewhere = store.task_tables
        # Before any row: what is folded meanwhile is folded again.
        kept = elsewhere.cursors() if elsewhere else {}
        header = SnapshotHeader(REVISION, org, clock(), cursors(store, kept))

        def all_rows(table: Table) -> Iterator[Sequence[Any]]:
            if elsewhere and table.name in elsewhere.names:
                return elsewhere.rows(table.name, [column.name for column in table.columns])
            own = rows(store.session, table)
            if elsewhere and table is positions:
                return chain(own, ((OF_TASKS, *cursor) for cursor in kept.items()))
            return own

        snapshot.write(path, header, tables, all_rows)
    return header


def rows(session: Session, table: Table) -> Iterator[Sequence[Any]]:
    """All rows of a table in the order of its primary key, a page at a time."""
    first, more = _pages(table)
    at = [list(table.columns).index(column) for column in table.primary_key]
    page = session.rows(first)
    while page:
        yield from page
        after = {f"after_{number}": page[-1][column] for number, column in enumerate(at)}
        page = session.rows(more, **after) if len(page) == PAGE else []


@cache
def _pages(table: Table) -> tuple[Prepared, Prepared]:
    key = list(table.primary_key)
    found = select(*table.columns).order_by(*key).limit(PAGE)
    after = [bindparam(f"after_{number}", type_=column.type) for number, column in enumerate(key)]
    past = key[0] > after[0] if len(key) == 1 else tuple_(*key) > tuple_(*after)
    return prepared(found), prepared(found.where(past))


def cursors(store: Store, elsewhere: Mapping[str, int] | None = None) -> dict[str, int]:
    """For each stream the sequence up to which all of the projection holds its effect.

    Args:
        elsewhere: those of tasks in another database, where they are known.
    """
    found = _of_rows(store.session)
    if store.task_tables is None:
        return found
    tasks = store.task_tables.cursors() if elsewhere is None else elsewhere
    return found | {
        stream: min(tasks.get(stream, 0), found.get(stream, tasks.get(stream, 0)))
        for stream in {*TASK_STREAMS, *tasks}
    }


def _of_rows(session: Session) -> dict[str, int]:
    found: dict[str, int] = {}
    whole = ~positions.c.projection.startswith(PASSED_OVER)
    for stream, seq in session.rows(select(positions.c.stream, positions.c.seq).where(whole)):
        found[stream] = min(seq, found.get(stream, seq))
    return found


def restore_projection(store: Store, path: Path | None) -> None:
    """Replace the projection by the snapshot at `path`, or empty it; identity stays as it is.

    Args:
        store: in the transaction that does all of it, but for tasks in another database.

    Raises:
        EnvironmentFault: the snapshot is damaged, or of a newer Postroom.
    """
    for table in PROJECTION:
        store.session.run(delete(table))
    if store.task_tables is not None:
        store.task_tables.clear()
    if path is not None:
        load(store, path, PROJECTION)


def load(store: Store, path: Path, tables: Sequence[Table]) -> None:
    """Insert the rows of the snapshot at `path` into `tables`, which are empty.

    Raises:
        EnvironmentFault: the snapshot is damaged, or of a newer Postroom.
    """
    with opened(path) as file:
        _insert(store.session, file, tables, store.task_tables)
    for index in INDEXES:
        if index.of in tables:
            index.add_all(store.session)
    if messages in tables:
        store.reading.marked_again()


def _insert(
    session: Session,
    file: SnapshotReader,
    tables: Sequence[Table],
    elsewhere: TaskTables | None = None,
) -> None:
    into = {table.name: prepared(insert(table)) for table in tables}
    for part in file.parts(tables):
        own = part.rows
        if elsewhere is not None and part.table in elsewhere.names:
            elsewhere.load(part.table, own)
            continue
        if elsewhere is not None and part.table == positions.name:  # the last table of all
            theirs = [row for row in own if row["projection"] == OF_TASKS]
            elsewhere.set_cursors({row["stream"]: row["seq"] for row in theirs})
            own = [row for row in own if row["projection"] != OF_TASKS]
        session.run_many(into[part.table], own)


def verify(path: Path) -> SnapshotHeader:
    """Check a snapshot, also one of an older version; returns its header.

    Raises:
        EnvironmentFault: it is damaged, or a newer Postroom wrote it.
    """
    with opened(path) as found:
        for _ in found.parts(()):
            pass
        return found.header


def held(path: Path) -> dict[str, int]:
    """The cursors in a snapshot, whose rows are not checked.

    Raises:
        EnvironmentFault: it is damaged.
    """
    with snapshot.opened(path) as found:
        return found.header.cursors


@contextmanager
def opened(path: Path) -> Generator[SnapshotReader, None, None]:
    """Read a snapshot, one of an older version as rows of the present tables. Blocks: use it in a thread.

    Raises:
        EnvironmentFault: it is damaged, or a newer Postroom wrote it.
    """
    with snapshot.opened(path) as found:
        check_revision(f"the snapshot {path.name}", found.header.revision)
        if found.header.revision == REVISION:
            yield found
            return
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".convert-") as scratch:
        new = Path(scratch) / snapshot.NAME
        _convert(path, new)
        with snapshot.opened(new) as found:
            yield found


def _convert(old: Path, new: Path) -> None:
    """Write the rows of an older snapshot as those of the present tables, by the migrations of a database."""
    scratch = new.with_name("convert.db")
    with typed_faults(), closing(sqlite3.connect(scratch, BUSY_TIMEOUT, 0, None)) as driver:
        driver.execute("PRAGMA synchronous = OFF")  # nothing here outlives a crash
        header = _fill(driver, old)
        altering(driver, upgrade)
        session = Session(ONE_FILE, driver)
        header = SnapshotHeader(REVISION, header.org, header.created, _of_rows(session))
        tables = (*IDENTITY, *PROJECTION)
        snapshot.write(new, header, tables, lambda table: rows(session, table))


def _fill(driver: sqlite3.Connection, path: Path) -> SnapshotHeader:
    """Make the tables of that older version, with the rows of the snapshot."""
    with snapshot.opened(path) as found:
        altering(driver, lambda connection: upgrade(connection, found.header.revision))
        tables: list[Table] = []

        def reflect(connection: Any) -> None:
            metadata = MetaData()
            metadata.reflect(connection)
            tables.extend(metadata.tables.values())

        altering(driver, reflect)
        driver.execute("BEGIN")
        _insert(Session(ONE_FILE, driver), found, tables)
        driver.execute("COMMIT")
        return found.header


@dataclass(frozen=True, slots=True)
class TableDigest:
    """The number of rows of a table, and a checksum that does not depend on their order."""

    rows: int
    checksum: str


def digests(session: Session) -> dict[str, TableDigest]:
    """The checksums of all tables."""
    return {table.name: _digest(session, table) for table in TABLES}


def _digest(session: Session, table: Table) -> TableDigest:
    number = total = 0
    for line in snapshot.lines(table, rows(session, table)):
        total += int.from_bytes(hashlib.sha256(line.encode()).digest(), "big")
        number += 1
    return TableDigest(number, f"{total % 2**256:064x}")


def check_empty(session: Session, place: str) -> None:
    """Check that no table has a row.

    Raises:
        Conflict: one has.
    """
    for table in TABLES:
        if session.rows(select(*table.primary_key).limit(1)):
            raise Conflict(
                f"{place} is not empty: it has {table.name}",
                remedy="name another database; nothing was moved",
            )


def fill(store: Store, path: Path) -> None:
    """Insert the rows of a snapshot of all tables."""
    load(store, path, TABLES)


def empty(session: Session) -> None:
    """Delete all rows, those that refer to others first."""
    for table in reversed(TABLES):
        session.run(delete(table))


def compare(one: dict[str, TableDigest], other: dict[str, TableDigest]) -> None:
    """Check that both have the same rows.

    Raises:
        EnvironmentFault: a table differs.
    """
    for name, digest in one.items():
        if other[name] != digest:
            raise EnvironmentFault(
                f"{name} has {other[name].rows} rows in the new database, or others than the"
                f" {digest.rows} of the old one: nothing was moved"
            )
