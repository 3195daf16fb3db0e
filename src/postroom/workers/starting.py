"""The start of a worker: wall, credential, consumers, door, sandbox."""

from __future__ import annotations

import asyncio
import secrets
import time

from postroom.directory.cards import Card
from postroom.gateway.port import DoorSpec
from postroom.identity.tokens import digest, new_token
from postroom.observe import get_logger
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS, agent_consumer
from postroom.sandbox.limit_monitor import LimitMonitor
from postroom.sandbox.port import Level
from postroom.store.agents import Agent
from postroom.store.workers import WorkerRecord, autonomy_of, patterns_of
from postroom.workers.launch import WorkerFolders, WorkerIdentity, card_of, compose, unwritable
from postroom.workers.parts import WorkerParts
from postroom.workers.preparing import Prepared
from postroom.workers.runs import Run
from postroom.workers.workspaces.service import Placed

log = get_logger(__name__)


class Starter:
    """Starts workers."""

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._limits = LimitMonitor()

    async def start(
        self,
        agent: Agent,
        record: WorkerRecord,
        prepared: Prepared,
        placed: Placed,
    ) -> Run:
        """Start a worker that does not run, with a new credential and token; former ones are revoked."""
        template, chosen = prepared.template, prepared.chosen
        folders = WorkerFolders.of(self._parts.settings, agent.uid)
        await asyncio.to_thread(folders.make, prepared.files)
        provider, level = chosen.provider, chosen.capability.level
        card = card_of(agent, record, template)
        identity = await self._identity(agent, record, level, card)
        for stream in AGENT_CONSUMER_STREAMS:
            await self._parts.admin.ensure_consumer(
                agent_consumer(stream, agent.uid, identity.projects)
            )
        door = DoorSpec(
            uid=agent.uid,
            org=agent.org,
            token_sha256=digest(identity.token),
            projects=identity.projects,
            egress=template.egress,
            credentials=template.credentials,
        )
        socket = await self._parts.gateway.open_door(door)
        spec = compose(
            provider,
            template,
            identity,
            folders,
            socket,
            self._parts.canaries,
            prepared.reach,
            placed,
        )
        gone, grace = (
            time.time() - (record.begun_at or record.created_at),
            self._parts.settings.stop_grace,
        )
        try:
            handle = await self._limits.start(provider, spec, elapsed=gone, grace=grace)
        except OSError as error:
            raise unwritable(error) from error
        if handle.unenforced:
            log.warning("worker %s: not enforced here: %s", agent.uid, ", ".join(handle.unenforced))
        return Run(
            handle,
            provider.name,
            time.time(),
            agent.nick,
            card,
            identity.run,
            template.interactive,
            spec.limits,
            handle.unenforced,
        )

    async def _identity(
        self, agent: Agent, record: WorkerRecord, level: Level, card: Card
    ) -> WorkerIdentity:
        token = new_token()
        await self._parts.database.write(
            lambda store: store.workers.set_token(agent.uid, digest(token))
        )
        secret = await self._parts.directory.message_secret(agent.uid)
        projects = (record.project,)
        await self._parts.issuer.withdraw(agent.uid)
        credential = await self._parts.issuer.issue(agent.uid, projects)
        # Not `record`: a person may have changed them since that was read. Of a later change the sidecar hears.
        kept = await self._parts.database.read(
            lambda store: store.workers.worker_by_uid(agent.uid) or record
        )
        return WorkerIdentity(
            agent.uid,
            agent.nick,
            agent.org,
            projects,
            credential,
            token,
            secret,
            self._parts.owner,
            level.value,
            card,
            secrets.token_hex(16),
            tuple(patterns_of(kept.rules)),
            autonomy_of(kept.rules),
        )
