"""`postroom backup` and `postroom restore`: of a post room that runs, and of a folder without one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from postroom.backup.restoring import Restored, restore
from postroom.backup.taking import Taken, back_up
from postroom.bus import embedded
from postroom.bus.embedded import STOP_GRACE
from postroom.control import nats_server
from postroom.control.statefile import StateLock
from postroom.errors import Conflict, InvalidInput, NotFound
from postroom.identity import keyring
from postroom.identity.trust import Trust
from postroom.settings import DEFAULT_ORG, Settings
from postroom.store import copying, snapshot
from postroom.store.database import Database
from postroom.store.migrate import migrate
from postroom.store.place import place_of


async def back_up_running(
    settings: Settings, databases: Mapping[str, Database], pid: int, file: str, passphrase: str
) -> Taken:
    """Back up a post room that runs; raises as `back_up`, and InvalidInput for a file that cannot be meant."""
    _check(settings)
    path = Path(file)
    if not path.is_absolute() or settings.state in path.resolve().parents:
        raise InvalidInput(
            f"the backup cannot be written to {file}", remedy="name a file outside the state folder"
        )
    return await asyncio.to_thread(back_up, settings, databases, path, passphrase, pid)


def _check(settings: Settings) -> None:
    known = nats_server.read(settings)
    if settings.memory:
        raise InvalidInput("a post room in memory keeps nothing that could be backed up")
    if settings.nats_urls or (known is not None and known.urls):
        raise Conflict(
            "the log of this post room is on NATS servers of your own",
            remedy="stop the post room, and back up their JetStream stores and the state folder together",
        )


def back_up_stopped(settings: Settings, file: Path, passphrase: str) -> Taken:
    """Back up a post room that is down.

    Raises:
        AlreadyRunning: one runs on the state folder.
        NotFound: the state folder has no post room.
    """
    if keyring.load(settings.keys) is None:
        raise NotFound(f"there is no post room in {settings.state}")
    os.umask(0o077)
    with StateLock.acquire(settings):
        _check(settings)
        return asyncio.run(_back_up_stopped(settings, file, passphrase))


async def _back_up_stopped(settings: Settings, file: Path, passphrase: str) -> Taken:
    trust = Trust.load_or_create(settings.keys, DEFAULT_ORG)
    async with AsyncExitStack() as stack:
        # The server of a killed post room may still be about to end.
        held = await embedded.lock_store_within(settings.nats / "store.lock", STOP_GRACE)
        stack.callback(os.close, held)
        databases = {}
        for org in trust.orgs:
            place = place_of(settings.for_org(org))
            databases[org] = await stack.enter_async_context(Database(place))
            await migrate(databases[org])
            await _check_folded(settings.for_org(org), databases[org])
        return await asyncio.to_thread(back_up, settings, databases, file, passphrase, 0)


async def _check_folded(settings: Settings, database: Database) -> None:
    """Tasks that are to be folded again would be missing from the backup, and perhaps from the log."""
    kept = copying.last(settings.snapshots)
    if kept is None:
        return
    held = await asyncio.to_thread(copying.held, kept)
    if snapshot.older(await database.read(copying.cursors), held):
        raise Conflict(
            "the projection is behind its last snapshot",
            remedy="start the post room once: postroom up",
        )


def run_restore(settings: Settings, file: Path, passphrase: str) -> Restored:
    """Restore a backup into the state folder; raises as `restore`."""
    os.umask(0o077)
    return restore(settings, file, passphrase)
