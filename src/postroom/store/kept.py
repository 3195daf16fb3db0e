"""A copy of a database's files before they are migrated: the way back to the version that wrote them."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from postroom.disk import sync
from postroom.errors import StateUnwritable
from postroom.store.schema import FIRST_REVISION, REVISION

FOLDER = "before-migrations"
"""Beside the projection; it has a folder for each migration."""

KEPT = 3
"""Migrations of which copies are kept."""

WAIT = 5.0
"""Seconds that another process's lock is waited for."""

MIB = 1024 * 1024


def keep(files: Iterable[Path], into: Path) -> Path | None:
    """Copy those of the files that a migration will change into a new folder in `into`; None if there are none.

    Raises:
        StateUnwritable: there is no space for it; nothing was changed.
    """
    versions = {file: _version(file) for file in files if file.exists()}
    old = [file for file, version in versions.items() if FIRST_REVISION <= version < REVISION]
    if not old:
        return None
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    folder = into / f"{stamp}-from-{min(versions[file] for file in old)}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in old:
            _copy(file, folder / file.name)
        sync(folder)
    except (OSError, sqlite3.Error) as error:
        shutil.rmtree(folder, ignore_errors=True)
        size = sum(file.stat().st_size for file in old) / MIB
        raise StateUnwritable(
            f"the database cannot be copied before it is brought to this version: {error}; nothing was changed",
            remedy=f"make room for {size:.0f} MiB on the disk of {into.parent}, then start again",
        ) from error
    for older in sorted(into.iterdir())[:-KEPT]:
        shutil.rmtree(older, ignore_errors=True)
    return folder


def _version(file: Path) -> str:
    """The revision that a file states, "" for none."""
    try:
        with _opened(file) as driver:
            found = driver.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.Error:  # without tables, or a fault that the migration itself will tell
        return ""
    return str(found[0]) if found else ""


def _opened(file: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(file, WAIT, 0, None))


def _copy(file: Path, to: Path) -> None:
    # A process that was killed a moment ago may have left a part.
    for left in (to, to.with_name(f"{to.name}-journal")):
        left.unlink(missing_ok=True)
    os.close(os.open(to, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with _opened(file) as source, _opened(to) as copy:
        source.backup(copy)
    sync(to)
