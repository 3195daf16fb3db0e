"""Takes over what the versions before had: identity in a file of each organisation.

`identity.db` had accounts and blobs. Its blobs become the organisation's `blobs.db`, its accounts go into those of the
installation, and only then it is deleted. Each step can be repeated after a crash:

    1. its tables become the present ones          one transaction
    2. blobs.db                                    whole and on disk under another name, before it takes its own
    3. the rows, with one in `orgs` that says so   one transaction of accounts.db
    4. identity.db is deleted
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from postroom.disk import sync
from postroom.store.copied_tables import copy_tables
from postroom.store.migrate import upgrade
from postroom.store.schema import ACCOUNTS, BLOBS
from postroom.store.sqlite import (
    BUSY_TIMEOUT,
    IDENTITY_FILE,
    SQLitePlace,
    altering,
    typed_faults,
)


def take_blobs(place: SQLitePlace) -> None:
    """Make `blobs.db` of the old file, if that is there.

    Raises:
        StateUnwritable: the disk is full or read-only; the next start goes on.
    """
    old, files = _old_file(place), place.files
    if files is None or not old.exists() or files.blobs.exists():
        return
    with typed_faults(), closing(sqlite3.connect(old, BUSY_TIMEOUT, 0, None)) as driver:
        driver.execute("PRAGMA synchronous = FULL")
        altering(driver, upgrade)
        copy_tables(driver, files.blobs, [table.name for table in BLOBS])


def take_accounts(place: SQLitePlace) -> None:
    """Move the rows of accounts out of the old file and delete it, if it is there; the tables for them exist.

    Raises:
        StateUnwritable: the disk is full or read-only; the next start goes on.
        Conflict: the accounts of the installation have one of the rows already.
    """
    old = _old_file(place)
    if not old.exists():
        return
    with place.opened("accounts") as driver:
        driver.execute("ATTACH ? AS old", (str(old),))
        driver.execute("BEGIN IMMEDIATE")
        if not driver.execute("SELECT 1 FROM orgs WHERE org = ?", (place.org,)).fetchone():
            for table in ACCOUNTS:
                names = [column.name for column in table.columns if column.name != "org"]
                columns = ", ".join(names)
                driver.execute(
                    f"INSERT INTO {table.name} ({columns}, org)"  # noqa: S608 (our own names)
                    f" SELECT {columns}, ? FROM old.{table.name}",
                    (place.org,),
                )
            driver.execute("INSERT INTO orgs VALUES (?, ?)", (place.org, place.folder))
        driver.execute("COMMIT")
    for suffix in ("-wal", "-shm", ""):
        old.with_name(f"{old.name}{suffix}").unlink(missing_ok=True)
    sync(old.parent)


def _old_file(place: SQLitePlace) -> Path:
    assert place.files is not None  # noqa: S101 (a database in memory was never another)
    return place.files.blobs.with_name(IDENTITY_FILE)
