"""Moves all rows of one database into another, empty one, and compares both. Blocks: call in a thread."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Table, delete, select

from postroom.errors import Conflict, EnvironmentFault
from postroom.store import copying, snapshot
from postroom.store.schema import IDENTITY, PROJECTION
from postroom.store.session import Session
from postroom.store.store import Store

TABLES = (*IDENTITY, *PROJECTION)
"""Every table, those that others refer to first."""


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
    for line in snapshot.lines(table, copying.rows(session, table)):
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
    copying.load(store, path, TABLES)


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
