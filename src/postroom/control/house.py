"""The composition root of one organisation: every part of the control plane, opened in order and closed in reverse."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from postroom.blobs.folder import BlobFolder
from postroom.blobs.office import BlobOffice, CaughtUp
from postroom.bus.host import BusHost
from postroom.control.api import build_api
from postroom.control.auditing import open_audit
from postroom.control.building import Building, open_building
from postroom.control.context import Context
from postroom.control.dispatch import Dispatch
from postroom.control.doors import OrgGateway
from postroom.control.front import Front
from postroom.control.mailroom import Mailroom, open_mailroom
from postroom.control.orgs import Orgs
from postroom.control.outages import watch_bus
from postroom.control.principals import Gate
from postroom.control.rotation import Rotation
from postroom.control.seat import EdgeSeat
from postroom.control.services import AgentServices
from postroom.control.statefile import Announcement
from postroom.control.taskverbs import TaskVerbs
from postroom.directory.announcements import Announcements
from postroom.directory.presence import PresenceBoard
from postroom.directory.registry import Registry
from postroom.directory.search import AgentSearch
from postroom.errors import PostroomError, ServerFailed
from postroom.identity.account_publisher import Accounts, system_connection
from postroom.identity.credential import Credential
from postroom.identity.push import delete_accounts
from postroom.identity.tokens import digest, new_api_key
from postroom.identity.trust import Trust
from postroom.observe import get_logger
from postroom.projection.changes import Change, Changes
from postroom.protocol.alerts import Alert
from postroom.settings import Settings
from postroom.store.agents import Agent
from postroom.tasks.office import TaskOffice
from postroom.tasks.requests import Requests
from postroom.workers.changed import Changed
from postroom.workers.issuer import Issuer
from postroom.workers.lifecycle import Workers
from postroom.workers.preparing import Preparing
from postroom.workers.starting import Starter
from postroom.workers.status import Roster, WorkerStates
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.mailbox import Mailbox

__all__ = ["House", "open_building", "open_orgs"]

log = get_logger(__name__)


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
    _room: Mailroom
    _workers: Workers
    _context: Callable[[Callable[[], Announcement], Orgs | None], Context]

    @classmethod
    async def open(
        cls,
        building: Building,
        settings: Settings,
        trust: Trust,
        stack: AsyncExitStack,
        *,
        key: str = "",
    ) -> House:
        """Open every part.

        Args:
            building: what it shares with other organisations.
            settings: of this organisation; its folders are its own.
            trust: keys, seen from this organisation.
            stack: closes it.
            key: the operator's API key, "" to make one.

        Raises:
            PostroomError: a part could not be opened.
        """
        room = await open_mailroom(settings, trust, building.host, stack)
        changed = Changed()
        presence = PresenceBoard(room.bus, room.admin, heard=changed)
        await presence.open()
        stack.push_async_callback(presence.close)
        building.alerts.add(room.directory.org, room.alerts.raise_alert)
        accounts = Accounts(trust, building.host, room.alerts.raise_alert)
        room.crew.start(accounts.run(), "accounts")
        issuer = Issuer(room.database, trust, accounts, settings.jwt_lifetime)
        workers = await _open_workers(building, settings, issuer, room, stack, changed)
        states = WorkerStates(workers, presence)
        registry = Registry(room.admin.jetstream, states.cards, trust.card_key, room.directory.org)
        changed.tell = partial(_worker_changed, room.changes, registry)
        edge = await EdgeSeat.open(trust, building.host, stack)
        announcements = Announcements(edge.bus, workers.take_card, room.alerts.raise_alert)
        await announcements.open()
        stack.push_async_callback(announcements.close)
        room.crew.start(watch_bus(room.bus, room.changes), "outages")
        rotation = Rotation(trust, building.host, accounts, edge.renew)
        room.crew.start(registry.run(), "registry")
        pages = AgentSearch(room.directory, workers.cards, states.online, registry.signed)
        requests = Requests(room.bus, room.admin, room.database, space=room.space)
        tasks = TaskOffice(
            room.bus,
            room.database,
            room.changes,
            room.chain,
            requests,
            running=workers.running,
            hindrance=states.hindrance,
        )
        workers.tell_limits(partial(_fail_at_work, room, tasks))
        dispatch = Dispatch(tasks, requests, room.directory, pages)
        verbs = TaskVerbs(tasks, room.database, workers, room.tasks_folded, dispatch.choose)
        services = AgentServices(room, issuer, pages, verbs)
        await services.open()
        stack.push_async_callback(services.close)
        blobs = await _open_blobs(settings, room, room.tasks_folded, stack)
        view = await open_audit(building, settings, trust, room, stack)
        key = key or new_api_key(room.owner.uid)

        def context(announcement: Callable[[], Announcement], orgs: Orgs | None) -> Context:
            return Context(
                room=room,
                tasks=tasks,
                dispatch=dispatch,
                gate=Gate(digest(key), room.database),
                workers=workers,
                roster=Roster(workers, states, presence, room.admin, tasks, room.alerts, changed),
                pages=pages,
                rotation=rotation,
                keys=trust.key_list,
                blobs=blobs,
                credentials=building.credentials,
                audit=view,
                card_key=trust.card_key.jwk,
                announcement=announcement,
                orgs=orgs,
                shut_down=building.shut_down,
            )

        return cls(key, room.owner, building.front, room, workers, context)

    async def go(self, announcement: Callable[[], Announcement], orgs: Orgs | None = None) -> None:
        """Open the API, then start again the workers that ran; `orgs` are for the default organisation to manage."""
        self._front.open(build_api(self._context(announcement, orgs)), self.owner.org)
        await self._workers.restore()

    async def alert(self, alert: Alert) -> None:
        """Raise an alert in this organisation."""
        await self._room.alerts.raise_alert(alert)

    async def counts(self) -> dict[str, int]:
        """How many workers, workers that run, unread messages and dead letters there are."""
        records = await self._workers.records()
        unread = await self._room.office.unread([self.owner.uid])
        return {
            "workers": len(records),
            "running": sum(self._workers.running(agent.uid) for agent, _ in records),
            "inbox": unread.get(self.owner.uid, 0),
            "deadletters": await self._room.deadletters.count(),
        }


def open_orgs(
    building: Building, default: House, trust: Trust, announcement: Callable[[], Announcement]
) -> Orgs:
    """The organisations beside the default one; they are opened by `Orgs.open`."""

    async def open_house(settings: Settings, seen: Trust, stack: AsyncExitStack) -> House:
        return await House.open(building, settings, seen, stack, key=default.operator_key)

    async def delete(core: Credential | None) -> None:
        if core is not None:
            await _delete_log(building.host, core)
        system = await system_connection(building.host.address, trust.system_credential())
        try:
            await delete_accounts(system, trust)
        finally:
            await system.close()

    return Orgs(building.settings, trust, building.front, default, open_house, delete, announcement)


async def _delete_log(host: BusHost, core: Credential) -> None:
    """Delete all streams of the organisation whose user of core this is: without its accounts nobody could."""
    connection = await system_connection(host.address, core)
    try:
        log = JetStream(Mailbox(connection))
        names = (await log.api("STREAM.NAMES")).get("streams") or ()  # a server lists 1,024 at once
        for name in names:
            await log.api(f"STREAM.DELETE.{name}")
    except PostroomError as error:
        raise ServerFailed(f"the log of a removed organisation is left: {error}") from error
    finally:
        await connection.close()


async def _open_workers(
    building: Building,
    settings: Settings,
    issuer: Issuer,
    room: Mailroom,
    stack: AsyncExitStack,
    changed: Callable[[], None],
) -> Workers:
    gateway = OrgGateway(building.gateway, building.front, settings.org)
    starter = Starter(
        settings=settings,
        database=room.database,
        directory=room.directory,
        admin=room.admin,
        issuer=issuer,
        gateway=gateway,
        canaries=building.canaries,
        remote=building.remote,
        owner=room.owner.uid,
    )
    workers = Workers(
        settings=settings,
        database=room.database,
        directory=room.directory,
        admin=room.admin,
        issuer=issuer,
        gateway=gateway,
        preparing=Preparing(
            settings, starter, partial(building.credentials.of, room.directory.org)
        ),
        starter=starter,
        alerts=room.alerts,
        tasks=room.crew.group,
        changed=changed,
        space=room.space,
    )
    stack.push_async_callback(workers.close)
    return workers


async def _fail_at_work(room: Mailroom, tasks: TaskOffice, worker: str, why: str) -> None:
    """End what a worker was at when it was ended for a limit, once all that it said of it is folded."""
    try:
        await room.tasks_folded()
        await tasks.fail_at_work(worker, why)
    except PostroomError as error:
        log.error("what %s was at is still open: %s", worker, error)


async def _open_blobs(
    settings: Settings, room: Mailroom, folded: CaughtUp, stack: AsyncExitStack
) -> BlobOffice:
    path = settings.blobs
    if settings.memory:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="postroom-blobs-")))
    folder = BlobFolder(path, largest=settings.blob_limit, most=settings.blobs_limit)
    blobs = BlobOffice(room.database, folder, folded)
    await blobs.open()
    room.crew.start(blobs.run(), "blobs")
    return blobs


def _worker_changed(changes: Changes, registry: Registry) -> None:
    registry.wake()
    changes.publish([Change("worker", 0)])
