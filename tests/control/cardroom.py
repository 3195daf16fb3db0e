"""A registry of cards over a real server, with workers whose processes a test only pretends."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from postroom.bus.nats.bus import NatsBus
from postroom.bus.port import Message
from postroom.directory.agents import Directory
from postroom.directory.announcements import Announcements
from postroom.directory.card_signatures import verify_card
from postroom.directory.cards import build_card
from postroom.directory.presence import PresenceBoard
from postroom.directory.registry import Registry
from postroom.directory.search import AgentSearch
from postroom.errors import NotFound
from postroom.protocol import subjects
from postroom.protocol.alerts import Alert
from postroom.protocol.presence import Presence, WorkerState
from postroom.protocol.streams import CARDS_BUCKET, card_key
from postroom.protocol.template import Template
from postroom.sandbox.port import ExitStatus, Level, SandboxHandle
from postroom.store.agents import Agent
from postroom.store.workers import WorkerRecord
from postroom.workers.lifecycle import Workers
from postroom.workers.run import Run
from postroom.workers.status import WorkerStates
from postroom_a2a.nats.kv import Bucket
from tests.mail.desk import running
from tests.rig import Rig, new_uid, running_bus

ORG = "default"
PATIENCE = 10.0


def card(uid: str, nick: str, *skills: str) -> dict[str, Any]:
    template = Template(name="x", command=("true",), description=f"I am {nick}.", skills=skills)
    return build_card(uid, nick, template, version="1")


class PretendedWorkers:
    """The part of `Workers` that cards are about."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.all: dict[str, Run] = {}
        self.stopped: list[tuple[Agent, WorkerRecord]] = []
        self._changed: Callable[[], None] = lambda: None

    def start(self, uid: str, nick: str, *skills: str) -> Run:
        handle = cast("SandboxHandle", SimpleNamespace(level=Level.NONE, pid=4711))
        shown = card(uid, nick, *skills)
        self.all[uid] = Run(handle, "none", time.time() - 1, nick, shown, new_uid(), True)
        return self.all[uid]

    def run_of(self, uid: str) -> Run | None:
        return self.all.get(uid)

    failure = staticmethod(lambda uid: "")
    running = Workers.running
    lives = Workers.lives
    interactive = Workers.interactive
    cards = Workers.cards
    take_card = Workers.take_card

    def state_folder(self, uid: str) -> Path:
        return self.folder / uid

    @property
    def _runs(self) -> dict[str, Run]:
        return self.all

    def runs(self) -> list[tuple[str, Run]]:
        return list(self.all.items())

    async def records(self) -> list[tuple[Agent, WorkerRecord]]:
        return self.stopped

    async def record(self, ref: str) -> tuple[Agent, WorkerRecord]:
        for agent, record in self.stopped:
            if ref.removeprefix("@") in {agent.uid, agent.nick}:
                return agent, record
        raise NotFound(ref)


@dataclass
class CardRoom:
    """A running registry.

    Attributes:
        alerts: uid and text of what was raised; without a text it is the end of one.
        written: what came into the bucket: (uid, card or None for a deletion), in order.
        later: seconds that the registry's clock is ahead.
    """

    rig: Rig
    workers: PretendedWorkers
    alerts: list[tuple[str, str]] = field(default_factory=list)
    written: list[tuple[str, dict[str, Any] | None]] = field(default_factory=list)
    later: float = 0.0
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    registry: Registry = field(init=False)
    presence: PresenceBoard = field(init=False)
    states: WorkerStates = field(init=False)

    def search(self, directory: Directory) -> AgentSearch:
        return AgentSearch(
            directory, self.as_workers.cards, self.states.online, self.registry.signed
        )

    @property
    def as_workers(self) -> Workers:
        return cast("Workers", self.workers)

    async def note(self, message: Message) -> None:
        async with self.arrived:
            value = json.loads(message.payload) if message.payload else None
            self.written.append((message.subject.rpartition(".")[2], value))
            self.arrived.notify_all()

    async def alert(self, alert: Alert) -> None:
        async with self.arrived:
            self.alerts.append((alert.who, alert.text))
            self.arrived.notify_all()

    async def until(self, happened: Any) -> Any:
        async with asyncio.timeout(PATIENCE), self.arrived:
            while not (found := happened()):
                await self.arrived.wait()
            return found

    async def bucket(self, uid: str) -> dict[str, Any] | None:
        """What the bucket holds for a worker, its signature checked and taken off."""
        entry = await Bucket(self.rig.admin.jetstream, CARDS_BUCKET).get(card_key(ORG, uid))
        if entry is None:
            return None
        return verify_card(json.loads(entry.value), [self.rig.trust.card_key.jwk])

    async def join(self, nick: str, *skills: str) -> NatsBus:
        """A worker that runs and has said that it is idle; its card is in the bucket on return."""
        bus = await self.rig.agent(new_uid())
        self.workers.start(bus.uid, nick, *skills)
        await self.say(bus, WorkerState.IDLE)
        await self.until(lambda: bus.uid in [uid for uid, found in self.written if found])
        async with asyncio.timeout(PATIENCE):
            while await self.bucket(bus.uid) is None:  # noqa: ASYNC110 (heard on its way there)
                await asyncio.sleep(0.01)
        return bus

    async def say(self, bus: NatsBus, state: WorkerState) -> None:
        said = Presence(state, at=time.time(), started_at=time.time())
        await bus.publish(subjects.status(bus.uid), said.encode())

    async def announce(self, bus: NatsBus, value: Any) -> None:
        await bus.publish(subjects.discovery(bus.uid), json.dumps(value).encode())

    def end(self, uid: str) -> None:
        self.workers.all[uid].ended = ExitStatus(0)
        self.registry.wake()


@asynccontextmanager
async def card_room(folder: Path, rig: Rig | None = None) -> AsyncGenerator[CardRoom]:
    """The registry on a server of its own, or on that of `rig`."""
    if rig is None:
        async with running_bus(folder) as own, card_room(folder, own) as room:
            yield room
        return
    room = CardRoom(rig, PretendedWorkers(folder / "workers"))

    def heard() -> None:  # the registry comes later
        room.registry.wake()

    room.presence = PresenceBoard(rig.core, rig.admin, heard=heard)

    def now() -> float:
        return time.time() + room.later

    room.states = WorkerStates(room.as_workers, room.presence, now)
    room.registry = Registry(
        rig.admin.jetstream, room.states.cards, rig.trust.card_key, ORG, now=now
    )
    room.workers._changed = room.registry.wake
    announcements = Announcements(rig.edge, room.workers.take_card, room.alert)
    tap = await rig.core.subscribe(f"$KV.{CARDS_BUCKET}.{ORG}.agents.*", room.note)
    await room.presence.open()
    await announcements.open()
    async with running(room.registry.run()):
        yield room
    await announcements.close()
    await room.presence.close()
    await tap.close()
