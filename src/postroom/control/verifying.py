"""`postroom admin verify` of a post room that is down: checks the messages of all organisations."""

from __future__ import annotations

import asyncio
import os

from postroom.control.base import signer_of
from postroom.control.statefile import StateLock
from postroom.errors import NotFound
from postroom.identity import keyring
from postroom.identity.trust import Trust
from postroom.mail.integrity import check_all
from postroom.protocol import answers
from postroom.settings import DEFAULT_ORG, Settings
from postroom.store.database import Database
from postroom.store.migrate import migrate
from postroom.store.place import place_of


def verify_stopped(settings: Settings) -> dict[str, answers.Integrity]:
    """What a check of each organisation has found.

    Raises:
        AlreadyRunning: a post room runs on the state folder.
        NotFound: the state folder has no post room.
    """
    if keyring.load(settings.keys) is None:
        raise NotFound(f"there is no post room in {settings.state}")
    os.umask(0o077)
    with StateLock.acquire(settings):
        return asyncio.run(_verify(settings))


async def _verify(settings: Settings) -> dict[str, answers.Integrity]:
    trust = Trust.load_or_create(settings.keys, DEFAULT_ORG)
    found: dict[str, answers.Integrity] = {}
    for org in trust.orgs:
        place = place_of(settings.for_org(org))
        async with Database(place, signer_of(trust.of(org))) as database:
            await migrate(database)
            found[org] = (await check_all(database)).as_json()
    return found
