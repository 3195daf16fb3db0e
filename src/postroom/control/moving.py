"""`postroom admin move-store`: all rows from one database to the other, while no post room runs."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from postroom.control.statefile import StateLock, prepare
from postroom.errors import Conflict, NotFound
from postroom.identity.trust import Trust
from postroom.settings import DEFAULT_ORG, Settings
from postroom.store import copying
from postroom.store.copying import TABLES
from postroom.store.database import Database
from postroom.store.migrate import migrate
from postroom.store.place import set_aside, sql_place_of
from postroom.store.session import Session
from postroom.store.sqlite import SQLitePlace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Moved:
    """How many rows of an organisation were moved, and found the same."""

    org: str
    rows: int


def run_move(settings: Settings, url: str, chosen: Callable[[], None]) -> list[Moved]:
    """Move the rows of every organisation to the PostgreSQL at `url`, or with "" into files of the state folder.

    The old database stays under another name.

    Args:
        chosen: has the setting `database.url` name the new place; called when all rows are there.

    Raises:
        AlreadyRunning: a post room runs on the state folder.
        NotFound: the state folder has no post room.
        Conflict: the rows are there already, or the new database is not empty.
        EnvironmentFault: a database cannot be reached, or both differ after the move; then the new one is empty again.
    """
    if not settings.keys.exists():
        raise NotFound(f"there is no post room in {settings.state}")
    if settings.database_url == url:
        raise Conflict("the post room has its rows there already")
    os.umask(0o077)
    prepare(settings)
    with StateLock.acquire(settings):
        return asyncio.run(_move(settings, replace(settings, database_url=url), chosen))


async def _move(old: Settings, new: Settings, chosen: Callable[[], None]) -> list[Moved]:
    orgs = Trust.load_or_create(old.keys, DEFAULT_ORG).orgs
    moved: list[Moved] = []
    async with AsyncExitStack() as stack:
        pairs = [
            (org, await _open(old.for_org(org), stack), await _open(new.for_org(org), stack))
            for org in orgs
        ]
        for org, _, target in pairs:  # all of them before the first row is moved
            await _read(
                target, lambda session, org=org: copying.check_empty(session, _name(new, org))
            )
        try:
            for org, source, target in pairs:
                moved.append(await _move_one(org, source, target, old.state))
            chosen()
        except BaseException:
            for _, _, target in pairs:
                await target.write(lambda store: copying.empty(store.session), timeout=None)
            raise
    await asyncio.to_thread(_keep_aside, [old.for_org(org) for org in orgs])
    return moved


def _name(settings: Settings, org: str) -> str:
    where = "the new database" if settings.database_url else f"{settings.for_org(org).database}"
    return where if org == DEFAULT_ORG else f"{where} (organisation {org})"


async def _open(settings: Settings, stack: AsyncExitStack) -> Database:
    settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    database = await stack.enter_async_context(Database(sql_place_of(settings)))
    await migrate(database)
    return database


async def _move_one(org: str, source: Database, target: Database, folder: Path) -> Moved:
    with tempfile.TemporaryDirectory(dir=folder, prefix=".move-") as scratch:
        kept = Path(scratch) / "rows"
        await asyncio.to_thread(copying.take, source, kept, org, tables=TABLES)
        await target.write(lambda store: copying.fill(store, kept), timeout=None)
    before, after = await _read(source, copying.digests), await _read(target, copying.digests)
    copying.compare(before, after)
    return Moved(org, sum(digest.rows for digest in after.values()))


async def _read(database: Database, work: Callable[[Session], T]) -> T:
    def run() -> T:
        with database.aside() as store:
            return work(store.session)

    return await asyncio.to_thread(run)


def _keep_aside(old: Sequence[Settings]) -> None:
    """Give the old database of all organisations another name, so that nobody goes on with it by mistake."""
    stamp = int(time.time())
    for one in old:
        place = sql_place_of(one)
        if isinstance(place, SQLitePlace) and place.files is not None:
            _rename(place.files.projection, stamp)
            _rename(place.files.blobs, stamp)
        else:
            set_aside(one)
    if not old[0].database_url:
        _rename(old[0].accounts, stamp)  # they are of all, so they come last


def _rename(file: Path, stamp: int) -> None:
    for suffix in ("", "-wal", "-shm"):
        path = file.with_name(f"{file.name}{suffix}")
        if path.exists():
            path.rename(path.with_name(f"moved-{stamp}-{path.name}"))
