"""The start of a worker: wall, credential, consumers, door, sandbox."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping

from postroom.bus.port import BusAdmin
from postroom.directory.agents import Directory
from postroom.directory.cards import Card
from postroom.gateway.port import DoorSpec, GatewayProvider
from postroom.identity.tokens import digest, new_token
from postroom.observe import get_logger
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS, agent_consumer
from postroom.protocol.template import Template
from postroom.sandbox.limit_monitor import LimitMonitor
from postroom.sandbox.opensandbox.remote import Remote
from postroom.sandbox.port import Level
from postroom.sandbox.select import Chosen, select
from postroom.sandbox.selftest import Canaries
from postroom.settings import Settings
from postroom.store import workers as worker_rows
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.workers import WorkerRecord
from postroom.workers.isolation import Demand
from postroom.workers.issuer import Issuer
from postroom.workers.launch import Passport, WorkerFolders, card_of, compose, unwritable
from postroom.workers.run import Run

log = get_logger(__name__)


class Starter:
    """Starts workers.

    Args:
        settings: folders, what `bwrap` is called, how long an end may take.
        database: records of workers.
        directory: the secrets of their messages.
        admin: makes their consumers.
        issuer: issues their credentials.
        gateway: their doors.
        canaries: what each wall is tried against.
        remote: where sandboxes are that run on other machines.
        owner: uid of the operator.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        database: Database,
        directory: Directory,
        admin: BusAdmin,
        issuer: Issuer,
        gateway: GatewayProvider,
        canaries: Canaries,
        remote: Remote | None,
        owner: str,
    ) -> None:
        self._settings = settings
        self._database = database
        self._directory = directory
        self._admin = admin
        self._issuer = issuer
        self._gateway = gateway
        self._canaries = canaries
        self._remote = remote
        self._owner = owner
        self._guard = LimitMonitor()

    async def choose(self, demanded: Demand) -> Chosen:
        """The wall that fulfils a demand.

        Raises:
            SandboxUnavailable: no such wall can be had here.
        """
        return await select(
            demanded.sandbox,
            binary=self._settings.bwrap,
            at_least=demanded.at_least,
            remote=self._remote,
        )

    async def start(
        self,
        agent: Agent,
        record: WorkerRecord,
        template: Template,
        chosen: Chosen,
        files: Mapping[str, bytes],
    ) -> Run:
        """Start a worker that does not run, with a new credential and token; those before are void.

        Args:
            agent: it.
            record: what is kept of it.
            template: of it.
            chosen: its wall.
            files: of its template, by name.

        Raises:
            PostroomError: a part could not be made, or the sandbox was not started.
        """
        folders = WorkerFolders.of(self._settings, agent.uid)
        await asyncio.to_thread(folders.make, files)
        provider, level = chosen.provider, chosen.capability.level
        card = card_of(agent, record, template)
        passport = await self._passport(agent, record, level, card)
        for stream in AGENT_CONSUMER_STREAMS:
            await self._admin.ensure_consumer(agent_consumer(stream, agent.uid, passport.projects))
        door = DoorSpec(
            uid=agent.uid,
            org=agent.org,
            token_sha256=digest(passport.token),
            projects=passport.projects,
            egress=template.egress,
            credentials=template.credentials,
        )
        socket = await self._gateway.open_door(door)
        spec = compose(provider, template, passport, folders, socket, self._canaries)
        gone, grace = (
            time.time() - (record.begun_at or record.created_at),
            self._settings.stop_grace,
        )
        try:
            handle = await self._guard.start(provider, spec, elapsed=gone, grace=grace)
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
            passport.run,
            template.interactive,
            spec.limits,
            handle.unenforced,
        )

    async def _passport(
        self, agent: Agent, record: WorkerRecord, level: Level, card: Card
    ) -> Passport:
        token = new_token()
        await self._database.write(lambda c: worker_rows.set_token(c, agent.uid, digest(token)))
        secret = await self._directory.message_secret(agent.uid)
        projects = (record.project,)
        await self._issuer.withdraw(agent.uid)
        credential = await self._issuer.issue(agent.uid, projects)
        return Passport(
            agent.uid,
            agent.nick,
            agent.org,
            projects,
            credential,
            token,
            secret,
            self._owner,
            level.value,
            card,
            secrets.token_hex(16),
        )
