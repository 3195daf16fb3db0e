"""The agents of other people that an organisation gives tasks to, put together: guard, credentials, files."""

from __future__ import annotations

import asyncio
from functools import partial

from postroom.blobs.service import BlobService
from postroom.control.app import Installation
from postroom.control.base import Base
from postroom.directory.outside import OutsideAgents
from postroom.errors import InvalidInput, NotFound
from postroom.http.exchange import outbound_exchange
from postroom.http.outbound import OutboundPolicy, client_context
from postroom.remote.agents import RemoteAgents
from postroom.remote.work import RemoteWork
from postroom.tasks.reports import TaskReports
from postroom_a2a.http.client_port import HttpExchange


def remote_agents(base: Base, outside: OutsideAgents) -> RemoteAgents:
    """Them, called through the guard of what leaves this machine, with the credentials of the gateway."""
    shared = base.installation
    return RemoteAgents(
        base.database,
        outside,
        _exchange(shared),
        lambda uid, name, url: shared.credentials.for_url(base.directory.org, name, url, uid),
    )


def remote_work(
    base: Base, agents: RemoteAgents, reports: TaskReports, blobs: BlobService
) -> RemoteWork:
    """What gives them their tasks."""
    read = partial(_read_blob, blobs)
    return RemoteWork(agents, reports, base.database, base.changes, base.callers, read)


def _exchange(shared: Installation) -> HttpExchange:
    settings = shared.settings
    tls = None if settings.egress_ca is None else client_context(settings.egress_ca)
    return outbound_exchange(OutboundPolicy.parse(settings.egress_private), tls)


async def _read_blob(blobs: BlobService, sha256: str, agent: str, most: int) -> bytes:
    try:
        row = await blobs.get(sha256, agent)
    except NotFound as error:
        raise InvalidInput("a file of the task is not there any more") from error
    if row.size > most:
        raise InvalidInput(
            f"a file of {row.size} bytes does not go out with a task, at most {most} do"
        )
    with await blobs.content(row) as file:
        return await asyncio.to_thread(file.read, most)
