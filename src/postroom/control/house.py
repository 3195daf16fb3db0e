"""The composition root: every part of the control plane, opened in order and closed in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nats

from postroom.bus.nats.admin import NatsAdmin, ensure_all
from postroom.bus.nats.bus import NatsBus
from postroom.bus.supervisor import Supervisor
from postroom.control.api import build_api
from postroom.control.context import Context
from postroom.control.front import Front
from postroom.control.listen import WorkerDialer
from postroom.control.presence import PresenceBoard
from postroom.control.principals import Gate
from postroom.control.roster import Roster
from postroom.control.services import AgentServices
from postroom.control.statefile import Announcement
from postroom.control.workers import Workers
from postroom.errors import PostroomError, ServerFailed
from postroom.gateway.audit import AuditLog
from postroom.gateway.relay import RelayGateway
from postroom.identity.credential import Credential
from postroom.identity.push import push_accounts
from postroom.identity.tokens import digest, new_api_key
from postroom.identity.trust import Trust
from postroom.mail.alerts import Alert, raise_alert
from postroom.mail.changes import Changes
from postroom.mail.clerk import Clerk
from postroom.mail.deadletters import DeadLetterMover
from postroom.mail.deadmail import DeadMail
from postroom.mail.directory import Directory
from postroom.mail.due import Watch
from postroom.mail.expiry import Expiry
from postroom.mail.fold import Fold
from postroom.mail.office import PostOffice
from postroom.mail.stale import Stale
from postroom.observe import get_logger
from postroom.protocol.ids import CONTROL_PLANE, NAME
from postroom.sandbox.canary import Roost
from postroom.settings import Settings
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.migrate import migrate

log = get_logger(__name__)

FOLD_DEADLINE = 60.0
"""Seconds for folding, at the start, what the log holds beyond SQL."""


@dataclass(slots=True)
class House:
    """The open control plane.

    Attributes:
        operator_key: API key of this start.
        owner: the operator.
    """

    operator_key: str
    owner: Agent
    _front: Front
    _workers: Workers
    _build: Callable[[Callable[[], Announcement]], Context]

    @classmethod
    async def open(
        cls,
        settings: Settings,
        trust: Trust,
        supervisor: Supervisor,
        front: Front,
        stack: AsyncExitStack,
        shut_down: Callable[[], None],
    ) -> House:
        """Open every part; `stack` closes them in reverse.

        Raises:
            PostroomError: a part could not be opened.
        """
        database = Database(None if settings.memory else settings.database)
        stack.push_async_callback(database.close)
        await migrate(database)
        bus, admin = await _open_bus(settings, trust, supervisor, stack)
        directory = Directory(database)
        owner = await _owner(directory)
        changes = Changes()
        stack.callback(changes.close)
        clerk = Clerk(bus, database)
        fold = Fold(bus, admin, database, changes, clerk)
        tasks = await stack.enter_async_context(_crew())
        for name, part in (
            ("fold", fold.run()),
            ("dead-letters", DeadLetterMover(bus, admin, database, clerk).run()),
            ("expiry", Watch(Expiry(database, clerk), changes).run()),
            ("stale", Watch(Stale(bus, database, settings.stale_after), changes).run()),
        ):
            tasks.start(part, name)
        await fold.ready(FOLD_DEADLINE)
        office = PostOffice(bus, admin, database, changes)
        presence = PresenceBoard(bus, admin)
        await presence.open()
        stack.push_async_callback(presence.close)
        services = AgentServices(
            bus=bus,
            settings=settings,
            database=database,
            directory=directory,
            office=office,
            trust=trust,
        )
        await services.open()
        stack.push_async_callback(services.close)
        gateway = _open_gateway(settings, supervisor, front, stack)
        stack.push_async_callback(gateway.close)
        roost = await stack.enter_async_context(Roost())
        workers = Workers(
            settings=settings,
            database=database,
            directory=directory,
            admin=admin,
            trust=trust,
            gateway=gateway,
            canaries=roost.canaries(""),
            owner=owner.uid,
            alert=lambda kind, text: _alert(bus, kind, text),
            tasks=tasks.group,
        )
        stack.push_async_callback(workers.close)
        key = new_api_key(owner.uid)

        def context(announcement: Callable[[], Announcement]) -> Context:
            return Context(
                bus=bus,
                gate=Gate(digest(key), database),
                owner=owner,
                directory=directory,
                office=office,
                deadletters=DeadMail(bus, database, changes),
                changes=changes,
                workers=workers,
                roster=Roster(workers, presence, admin),
                announcement=announcement,
                shut_down=shut_down,
            )

        return cls(key, owner, front, workers, context)

    async def go(self, announcement: Callable[[], Announcement]) -> None:
        """Open the API, then start again the workers that ran."""
        self._front.open(build_api(self._build(announcement)))
        await self._workers.restore()


class _Crew:
    """The background tasks of the control plane; the death of one ends the post room."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.group = group
        self.tasks: list[asyncio.Task[Any]] = []

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.tasks.append(self.group.create_task(work, name=name))


@contextlib.asynccontextmanager
async def _crew() -> AsyncIterator[_Crew]:
    async with asyncio.TaskGroup() as group:
        crew = _Crew(group)
        try:
            yield crew
        finally:
            for task in crew.tasks:
                task.cancel()


async def _open_bus(
    settings: Settings, trust: Trust, supervisor: Supervisor, stack: AsyncExitStack
) -> tuple[NatsBus, NatsAdmin]:
    server = supervisor.server
    system = await _system_connection(server.url, trust.system_credential())
    try:
        await push_accounts(system, trust)
        if not settings.memory and not await server.effective_sync_always(system):
            raise ServerFailed("nats-server does not flush each record before it acknowledges it")
    finally:
        await system.close()
    credential = trust.core_credential()
    bus = await NatsBus.connect(
        server.url,
        uid=CONTROL_PLANE,
        jwt=lambda: credential.jwt,
        sign=credential.sign,
        name="postroom",
        on_error=lambda error: log.warning("bus: %s", error),
    )
    stack.push_async_callback(bus.close)
    admin = NatsAdmin(bus, memory=settings.memory)
    await ensure_all(admin)
    return bus, admin


async def _system_connection(url: str, credential: Credential) -> nats.NATS:
    return await nats.connect(
        url,
        user_jwt_cb=credential.jwt_callback,
        signature_cb=credential.signature_callback,
        name="postroom-system",
    )


def _open_gateway(
    settings: Settings, supervisor: Supervisor, front: Front, stack: AsyncExitStack
) -> RelayGateway:
    # A unix socket's path has 107 bytes at most, and a state folder may lie deep.
    folder = stack.enter_context(
        tempfile.TemporaryDirectory(prefix="postroom-", ignore_cleanup_errors=True)
    )
    audit = AuditLog(settings.logs / "audit.jsonl")
    stack.callback(audit.close)

    async def dial_nats(_uid: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(settings.host, supervisor.server.port)

    upstreams = {"nats": dial_nats, "http": WorkerDialer(front).dial}
    return RelayGateway(Path(folder), upstreams, audit)


async def _owner(directory: Directory) -> Agent:
    """The operator, made at the first start and named like the user of this machine."""
    for agent in await directory.all():
        if agent.kind == "human":
            return agent
    nick = re.sub(r"[^a-z0-9_-]", "-", getpass.getuser().lower())[:64]
    return await directory.register(nick if NAME.fullmatch(nick) else "operator", "human")


async def _alert(bus: NatsBus, kind: str, text: str) -> None:
    try:
        await raise_alert(bus, Alert(text, kind))
    except PostroomError as error:
        log.error("an alert could not be raised: %s: %s", text, error)
