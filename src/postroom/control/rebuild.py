"""`postroom admin rebuild`: deletes the projection and folds it again, while no post room runs."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from dataclasses import replace

from postroom.bus.supervisor import Supervisor
from postroom.control import nats_server
from postroom.control.base import RULES, open_bus, signer_of
from postroom.control.certificate import open_certificate
from postroom.control.endpoints import plan
from postroom.control.statefile import StateLock, prepare
from postroom.errors import NotFound
from postroom.identity.trust import Trust
from postroom.mail.integrity import mend
from postroom.projection.rebuild import rebuild
from postroom.settings import DEFAULT_ORG, Settings
from postroom.store import copying
from postroom.store.database import Database
from postroom.store.migrate import migrate
from postroom.store.place import place_of


def run_rebuild(settings: Settings) -> int:
    """Build the projection from the last snapshot and the log behind it; agents and workers stay as they are.

    Returns how many altered messages the log has mended.

    Raises:
        AlreadyRunning: a post room runs on the state folder.
        Conflict: its log is on another bus than the one that is named.
        NotFound: the state folder has no post room.
        EnvironmentFault: snapshot and log do not belong together, or the machine prevents it.
    """
    if not settings.database_url and not settings.database.exists():
        raise NotFound(f"there is no post room in {settings.home}")
    os.umask(0o077)
    prepare(settings)
    with StateLock.acquire(settings):
        nats_server.check_named(settings)
        return asyncio.run(_rebuild(replace(settings, nats_port=0, memory=False, listen=())))


async def _rebuild(settings: Settings) -> int:
    trust = Trust.load_or_create(settings.keys, DEFAULT_ORG).of(settings.org)
    if settings.nats_urls:
        host = nats_server.external_bus(settings, trust)
    else:
        endpoints = plan(settings)
        certificate = open_certificate(settings, endpoints)
        host = Supervisor(nats_server.server_config(settings, trust, endpoints, certificate))
    async with AsyncExitStack() as stack:
        await host.start()
        stack.push_async_callback(host.stop)
        place = place_of(settings)
        database = await stack.enter_async_context(Database(place, signer_of(trust)))
        await migrate(database)
        _, admin, _ = await open_bus(settings, trust, host, stack)
        await rebuild(database, admin, RULES, copying.last(settings.snapshots))
        # What the snapshot brings keeps its signature; only the log proves what an altered message said.
        return await mend(database, admin)
