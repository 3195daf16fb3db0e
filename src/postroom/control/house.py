"""The composition root of one organisation: every part of the control plane, opened in order and closed in reverse."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from postroom.blobs.folder import BlobFolder
from postroom.blobs.office import BlobOffice, CaughtUp
from postroom.bus.host import BusHost
from postroom.bus.nats.bus import NatsBus
from postroom.control.accounts import Accounts
from postroom.control.announcements import Announcements
from postroom.control.api import build_api
from postroom.control.building import Building, open_building
from postroom.control.context import Context
from postroom.control.credentials import Credentials
from postroom.control.dispatch import Dispatch
from postroom.control.front import Front
from postroom.control.mailroom import Mailroom, open_mailroom
from postroom.control.presence import PresenceBoard
from postroom.control.principals import Gate
from postroom.control.registry import Registry
from postroom.control.roster import Roster, hindrance, state_of
from postroom.control.rotation import Rotation
from postroom.control.services import AgentServices
from postroom.control.statefile import Announcement
from postroom.control.taskverbs import FOLD_DEADLINE, TaskVerbs
from postroom.control.workers import Workers
from postroom.control.yellowpages import YellowPages
from postroom.errors import PostroomError
from postroom.folding.alerts import Alert, raise_alert
from postroom.identity.tokens import digest, new_api_key
from postroom.identity.trust import Trust
from postroom.observe import get_logger
from postroom.protocol.ids import CONTROL_PLANE
from postroom.settings import Settings
from postroom.store.agents import Agent
from postroom.store.workers import RUNNING
from postroom.tasks.office import TaskOffice
from postroom.tasks.requests import Requests

__all__ = ["House", "open_building"]

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
    _workers: Workers
    _context: Callable[[Callable[[], Announcement]], Context]

    @classmethod
    async def open(
        cls,
        building: Building,
        settings: Settings,
        trust: Trust,
        stack: AsyncExitStack,
    ) -> House:
        """Open every part.

        Args:
            building: what it shares with other organisations.
            settings: of this organisation; its folders are its own.
            trust: keys, seen from this organisation.
            stack: closes it.

        Raises:
            PostroomError: a part could not be opened.
        """
        room = await open_mailroom(settings, trust, building.host, stack)
        changed = Changed()
        presence = PresenceBoard(room.bus, room.admin, heard=changed)
        await presence.open()
        stack.push_async_callback(presence.close)
        accounts = Accounts(trust, building.host, partial(_alert, room.bus))
        room.crew.start(accounts.run(), "accounts")
        credentials = Credentials(room.database, trust, accounts, settings.jwt_lifetime)
        workers = await _open_workers(building, settings, credentials, room, stack, changed)
        registry = Registry(
            room.bus, room.admin, presence, workers, trust.card_key, room.directory.org
        )
        changed.tell = registry.wake
        edge = await EdgeSeat.open(trust, building.host, stack)
        announcements = Announcements(edge.bus, workers, changed, partial(_alert, room.bus))
        await announcements.open()
        stack.push_async_callback(announcements.close)
        rotation = Rotation(trust, building.host, accounts, edge.bus, edge.renew)
        room.crew.start(registry.run(), "registry")
        pages = YellowPages(room.directory, workers, registry)
        requests = Requests(room.bus, room.admin, room.database, space=room.space)
        tasks = TaskOffice(
            room.bus,
            room.database,
            room.changes,
            room.chain,
            requests,
            running=workers.running,
            hindrance=partial(_hindrance, workers, presence),
        )
        dispatch = Dispatch(tasks, requests, room.directory, pages)
        folded = partial(_tasks_folded, room)
        verbs = TaskVerbs(tasks, room.database, workers, folded, dispatch.choose)
        services = AgentServices(room, credentials, pages, verbs)
        await services.open()
        stack.push_async_callback(services.close)
        blobs = await _open_blobs(settings, room, folded, stack)
        key = new_api_key(room.owner.uid)

        def context(announcement: Callable[[], Announcement]) -> Context:
            return Context(
                room=room,
                tasks=tasks,
                dispatch=dispatch,
                gate=Gate(digest(key), room.database),
                workers=workers,
                roster=Roster(workers, presence, room.admin, tasks),
                pages=pages,
                rotation=rotation,
                keys=trust.key_list,
                blobs=blobs,
                card_key=trust.card_key.jwk,
                announcement=announcement,
                shut_down=building.shut_down,
            )

        return cls(key, room.owner, building.front, workers, context)

    async def go(self, announcement: Callable[[], Announcement]) -> None:
        """Open the API, then start again the workers that ran."""
        self._front.open(build_api(self._context(announcement)))
        await self._workers.restore()


class Changed:
    """Passes on that a worker has changed; there are workers before there is somebody to tell."""

    def __init__(self) -> None:
        self.tell: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        """Something has changed."""
        self.tell()


class EdgeSeat:
    """The control plane's connection among the agents.

    Attributes:
        bus: the connection.
    """

    bus: NatsBus

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._credential = trust.edge_credential()

    @classmethod
    async def open(cls, trust: Trust, host: BusHost, stack: AsyncExitStack) -> EdgeSeat:
        """Connect; `stack` closes it."""
        seat = cls(trust)
        seat.bus = await NatsBus.connect(
            host.address,
            uid=CONTROL_PLANE,
            jwt=lambda: seat._credential.jwt,
            sign=seat._sign,
            name="postroom-edge",
            on_error=lambda error: log.warning("edge: %s", error),
        )
        stack.push_async_callback(seat.bus.close)
        return seat

    def _sign(self, nonce: bytes) -> bytes:
        return self._credential.sign(nonce)

    async def renew(self) -> None:
        """Go on with a credential of the present key."""
        self._credential = self._trust.edge_credential()
        await self.bus.renew()


async def _open_workers(
    building: Building,
    settings: Settings,
    credentials: Credentials,
    room: Mailroom,
    stack: AsyncExitStack,
    changed: Callable[[], None],
) -> Workers:
    workers = Workers(
        settings=settings,
        database=room.database,
        directory=room.directory,
        admin=room.admin,
        credentials=credentials,
        gateway=building.gateway,
        canaries=building.canaries,
        owner=room.owner.uid,
        alert=partial(_alert, room.bus),
        tasks=room.crew.group,
        changed=changed,
    )
    stack.push_async_callback(workers.close)
    return workers


async def _tasks_folded(room: Mailroom) -> None:
    for stream in ("INBOX", "TASKS"):
        last = await room.admin.last_sequence(stream)
        await room.fold.reached(stream, last, FOLD_DEADLINE)


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


async def _alert(bus: NatsBus, kind: str, text: str) -> None:
    try:
        await raise_alert(bus, Alert(text, kind))
    except PostroomError as error:
        log.error("an alert could not be raised: %s: %s", text, error)


def _hindrance(workers: Workers, presence: PresenceBoard, uid: str) -> str:
    run, said = workers.run_of(uid), presence.of(uid)
    return hindrance(*state_of(RUNNING, run, said, time.time()))
