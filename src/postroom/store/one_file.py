"""Splits the one file of the first versions into that of identity and that of the projection.

Each step can be repeated after a crash. Identity is on disk in its own file before anything leaves the old one.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from postroom.disk import sync
from postroom.store.copied_tables import copy_tables
from postroom.store.migrate import upgrade
from postroom.store.sqlite import BUSY_TIMEOUT, IDENTITY_FILE, OLD_FILE, altering, typed_faults

LAST = "0007"
"""The last version of the one file."""

MOVED = ("memberships", "api_keys", "workers", "credentials", "blob_readers", "blobs", "agents")
"""The tables of identity in that version, in the order in which they can be dropped."""


def split(projection: Path) -> None:
    """Make `projection`, and identity beside it, of the old file in their folder, if it is there.

    Raises:
        StateUnwritable: the disk is full or read-only; the next start goes on.
    """
    old = projection.with_name(OLD_FILE)
    if not old.exists():
        return
    identity = projection.with_name(IDENTITY_FILE)
    with typed_faults(), closing(sqlite3.connect(old, BUSY_TIMEOUT, 0, None)) as driver:
        if not identity.exists():
            altering(driver, lambda connection: upgrade(connection, LAST))
            copy_tables(driver, identity, tuple(reversed(MOVED)))
        for table in MOVED:
            driver.execute(f"DROP TABLE IF EXISTS {table}")
        driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        driver.execute("PRAGMA journal_mode = DELETE")
    old.replace(projection)
    sync(projection.parent)
