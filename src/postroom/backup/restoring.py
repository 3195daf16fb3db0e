"""Restores a backup into an empty state folder: all of it, or nothing.

Everything is made in a folder beside it, and takes its name in one step at the end.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from postroom.backup import archive
from postroom.backup.taking import FORMAT, KEYS, SNAPSHOTS
from postroom.disk import sync
from postroom.errors import Conflict, EnvironmentFault, InvalidInput, StateUnwritable
from postroom.identity.privatefile import replace as write_private
from postroom.protocol.ids import check_name
from postroom.settings import Settings
from postroom.settings.sources import load
from postroom.store import copying, snapshot
from postroom.store.database import Database
from postroom.store.migrate import migrate
from postroom.store.place import sql_place_of
from postroom.store.schema import IDENTITY, PROJECTION, check_revision

SECRET_PLACES = ("keys", "tls", "postroom.toml")
"""Where the sealed part of a backup may put files."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What was restored."""

    state: Path
    created: float
    version: str
    orgs: tuple[str, ...]


def restore(settings: Settings, file: Path, passphrase: str) -> Restored:
    """Restore the backup in `file` into the state folder, which has to be empty. Blocks.

    Raises:
        Conflict: the state folder is not empty.
        InvalidInput: the file is no whole backup, or the passphrase is wrong.
        EnvironmentFault: a newer Postroom made the backup, or one before migrations began.
        StateUnwritable: the disk is full, or not writable. After any error nothing is there.
    """
    state = settings.state
    _check_empty(state)
    checked = archive.check(file, (KEYS,))
    about = checked.about
    if about["format"] != FORMAT:
        raise EnvironmentFault(
            f"Postroom {about['version']} made this backup, and this one does not know its form",
            remedy="restore it with that version",
        )
    check_revision("the backup", about["revision"])
    orgs = tuple(check_name(str(org), "organisation") for org in about["orgs"])
    secrets = _secrets(checked.documents.get(KEYS, b""), passphrase, checked.raw)
    staging = state.with_name(f".{state.name}.restoring")
    try:
        shutil.rmtree(staging, ignore_errors=True)  # left by one that was killed
        staging.mkdir(mode=0o700, parents=True)
        try:
            _fill(staging, file, secrets)
            # The settings that came with it say where its rows belong.
            with_it = load(staging)
            made = replace(
                settings,
                state=staging,
                database_url=with_it.database_url,
                task_store=with_it.task_store or settings.task_store,
            )
            asyncio.run(_load_all(made, staging, orgs))
            (staging / KEYS).unlink()
            _sync_tree(staging)
            staging.replace(state)  # takes the place of an empty folder, and of no other
            sync(state.parent)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise StateUnwritable(
            f"cannot write {error.filename or state}: {error.strerror}",
            remedy="make room, or choose another folder with --state DIR; nothing was restored",
        ) from error
    return Restored(state, float(about["created"]), str(about["version"]), orgs)


def _check_empty(state: Path) -> None:
    if state.is_symlink() or (state.exists() and not state.is_dir()):
        raise Conflict(f"{state} is no folder", remedy="choose another one with --state DIR")
    if state.exists() and any(state.iterdir()):
        raise Conflict(
            f"the state folder {state} is not empty",
            remedy="move it away, or choose another one with --state DIR; a restore replaces nothing",
        )


def _secrets(document: bytes, passphrase: str, about: bytes) -> dict[str, bytes]:
    """The files in the sealed part; their names are checked."""
    content = json.loads(archive.unseal(document, passphrase, about))
    found = {}
    for name, text in content.items():
        parts = name.split("/")
        if parts[0] not in SECRET_PLACES or any(part in {"", ".", ".."} for part in parts):
            raise InvalidInput(f"the keys of the backup have an entry {name!r}")
        found[name] = base64.b64decode(text)
    return found


def _fill(staging: Path, file: Path, secrets: Mapping[str, bytes]) -> None:
    archive.extract(file, staging)
    for name, content in secrets.items():
        place = staging / name
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(place, content)


async def _load_all(settings: Settings, staging: Path, orgs: tuple[str, ...]) -> None:
    """The rows of all organisations; the log behind them is folded at the next start."""
    async with AsyncExitStack() as stack:
        databases = {}
        for org in orgs:
            home = settings.for_org(org)
            home.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            databases[org] = await stack.enter_async_context(Database(sql_place_of(home)))
            await migrate(databases[org])
            await databases[org].read(
                lambda store: copying.check_empty(store.session, "the database")
            )
        try:
            for org, database in databases.items():
                await _load(database, staging, org)
                # It stays as the last snapshot, from which `rebuild` begins: the log may be shorter. The next start
                # loads tasks from it that lie elsewhere, where it finds none.
                kept = settings.for_org(org).snapshots / snapshot.NAME
                kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                (staging / SNAPSHOTS / f"{org}.projection").replace(kept)
                (staging / SNAPSHOTS / f"{org}.identity").unlink()
        except BaseException:
            for database in databases.values():
                await database.write(lambda store: copying.empty(store.session), timeout=None)
            raise


async def _load(database: Database, staging: Path, org: str) -> None:
    for part, tables in (("identity", IDENTITY), ("projection", PROJECTION)):
        kept = staging / SNAPSHOTS / f"{org}.{part}"
        await database.write(
            lambda store, kept=kept, tables=tables: copying.load(store, kept, tables),
            timeout=None,
        )


def _sync_tree(folder: Path) -> None:
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place) / name
            if path.is_file() and not path.is_symlink():
                sync(path)
        sync(Path(place))
