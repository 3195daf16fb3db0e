"""Takes the rows of a removed organisation out of the accounts of an installation.

They go into its own folder, which is kept for a person to read and delete: a file `accounts.db` with its rows alone.
That is on disk before they are deleted where they were, so both can be repeated after a crash.
"""

from __future__ import annotations

from pathlib import Path

from postroom.disk import sync
from postroom.store.schema import ACCOUNTS, orgs
from postroom.store.session import Driver
from postroom.store.sqlite import ACCOUNTS_FILE, SQLitePlace

_NAMES = (*(table.name for table in ACCOUNTS), orgs.name)


def take_out(place: SQLitePlace) -> None:
    """Move the rows of the organisation of `place`, which is removed; those in memory are forgotten.

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
            _copy(driver, home / ACCOUNTS_FILE, place.org)
        driver.execute("BEGIN IMMEDIATE")
        for name in (*reversed(_NAMES[:-1]), orgs.name):
            driver.execute(f"DELETE FROM {schema}.{name} WHERE org = ?", (place.org,))  # noqa: S608 (our own names)
        driver.execute("COMMIT")


def _copy(driver: Driver, file: Path, org: str) -> None:
    """Copy the rows of `org`, and the version of the tables, to a new `file`: whole and on disk, or not at all."""
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    driver.execute("ATTACH ? AS copy", (str(new),))
    driver.execute("PRAGMA copy.journal_mode = DELETE")
    driver.execute("BEGIN IMMEDIATE")
    for table in ("alembic_version", *_NAMES):
        shape = "SELECT type, sql FROM main.sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL"
        # Tables before their indexes.
        for kind, sql in driver.execute(f"{shape} ORDER BY type DESC", (table,)).fetchall():
            before, after = sql.split(f"{kind.upper()} ", 1)
            driver.execute(f"{before}{kind.upper()} copy.{after}")
        rows = f"INSERT INTO copy.{table} SELECT * FROM main.{table}"  # noqa: S608
        if table in _NAMES:
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
        for name in _NAMES
    )
