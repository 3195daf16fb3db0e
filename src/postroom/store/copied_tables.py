"""Copies tables of a SQLite file into another one."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from postroom.disk import sync


def copy_tables(
    driver: sqlite3.Connection, file: Path, tables: Sequence[str], *, org: str = ""
) -> None:
    """Copy `tables` of a database, and its version, to a new `file`: whole and on disk, or not at all.

    Args:
        org: only the rows of that organisation.
    """
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    driver.execute("ATTACH ? AS copy", (str(new),))
    driver.execute("PRAGMA copy.journal_mode = DELETE")
    driver.execute("BEGIN IMMEDIATE")
    for table in ("alembic_version", *tables):
        shape = "SELECT type, sql FROM main.sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL"
        # Tables before their indexes.
        for kind, sql in driver.execute(f"{shape} ORDER BY type DESC", (table,)).fetchall():
            before, after = sql.split(f"{kind.upper()} ", 1)
            driver.execute(f"{before}{kind.upper()} copy.{after}")
        rows = f"INSERT INTO copy.{table} SELECT * FROM main.{table}"  # noqa: S608 (our own names)
        if org and table in tables:
            driver.execute(f"{rows} WHERE org = ?", (org,))
        else:
            driver.execute(rows)
    driver.execute("COMMIT")
    driver.execute("DETACH copy")
    sync(new)
    new.replace(file)
    sync(file.parent)
