"""The control plane of one organisation, opened by its own root, with workers that a test drives by hand.

Everything is real but the sandboxes: a worker here is a record and a start whose process a test only pretends.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from postroom.bus.address import BusAddress
from postroom.bus.nats.bus import NatsBus
from postroom.bus.port import Delivery
from postroom.bus.port import Message as Stored
from postroom.control.app import open_installation
from postroom.control.endpoints import plan
from postroom.control.org import Organisation
from postroom.control.parts import Parts
from postroom.control.statefile import Announcement
from postroom.directory.card_signatures import verify_card
from postroom.directory.cards import build_card
from postroom.identity.tokens import OperatorKey, digest, new_token
from postroom.protocol import priority, subjects
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.presence import Presence, WorkerState
from postroom.protocol.principal import OPERATOR_KEY
from postroom.protocol.priority import PriorityRecord
from postroom.protocol.receipts import State
from postroom.protocol.streams import CARDS_BUCKET, card_key
from postroom.protocol.tasks import chain_headers
from postroom.protocol.template import Template
from postroom.sandbox.port import ExitStatus, Level
from postroom.settings import DEFAULT_ORG, Settings
from postroom.store.agents import Agent
from postroom.store.database import Store
from postroom.store.ports import TaskRow
from postroom.store.workers import RUNNING, STOPPED, WorkerRecord
from postroom.tasks.records import TaskRecord
from postroom.workers.reach import BY
from postroom.workers.runs import Run
from postroom_a2a.nats.connection import WireConnection
from postroom_a2a.nats.kv import Bucket
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import (
    Message,
    agent_message,
    answer_update,
    apply,
    artifact_update,
    status_update,
    text_artifact,
)
from tests.control.conforming import contract
from tests.control.serving import Site, serving
from tests.rig import Rig, new_uid, running_server

KEY = "operator-key"
LARGEST_BLOB = 1024 * 1024
ALL_BLOBS = 4 * LARGEST_BLOB
SECONDS = 10.0


def card(uid: str, nick: str, *skills: str) -> dict[str, Any]:
    template = Template(name="x", command=("true",), description=f"I am {nick}.", skills=skills)
    return build_card(uid, nick, template, version="1")


class PretendedSandbox:
    """A `SandboxHandle` without a process."""

    def __init__(self) -> None:
        self.pid = 4711
        self.level: Level = Level.NONE
        self.unenforced: tuple[str, ...] = ()
        self._ended = asyncio.Event()

    async def wait(self) -> ExitStatus:
        await self._ended.wait()
        return ExitStatus(0)

    async def stop(self, grace: float) -> ExitStatus:
        self._ended.set()
        return ExitStatus(0)

    def kill(self) -> None:
        self._ended.set()


class RigHost:
    """`BusHost` of a server that a test runs."""

    version, replicas, doubts = "2", 1, ()

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    @property
    def address(self) -> BusAddress:
        return BusAddress((self._rig.url,))

    @property
    def pid(self) -> int:
        return self._rig.server.pid

    async def check(self, system: WireConnection) -> None:
        """Nothing: what is asked is proved by the tests of the bus."""

    async def trust_proxies(self, proxies: Sequence[str]) -> bool:
        raise NotImplementedError

    async def trust_operator(
        self, operator_jwt: str, signers: Sequence[str], accounts: Mapping[str, str]
    ) -> bool:
        raise NotImplementedError

    async def run(self) -> None:
        """Nothing: the rig keeps it up."""

    async def stop(self) -> None:
        """Nothing: the rig ends it."""


@dataclass
class Hand:
    """A worker driven by hand: it writes records as the credential of a worker may."""

    room: TaskRoom
    agent: Agent
    bus: NatsBus
    run: str = ""
    heard: asyncio.Queue[tuple[str, PriorityRecord]] = field(default_factory=asyncio.Queue)

    @property
    def uid(self) -> str:
        return self.agent.uid

    async def start(self, *skills: str) -> Run:
        """Run, and hear what overtakes work."""
        handle, shown = PretendedSandbox(), card(self.uid, self.agent.nick, *skills)
        run = Run(handle, "none", time.time() - 1, self.agent.nick, shown, new_uid(), True)
        self.room.parts.workers._runs.begin(self.agent, run)
        self.run = run.id
        return run

    def end(self) -> None:
        run = self.room.parts.workers.run_of(self.uid)
        assert run is not None
        run.stopping, run.ended = True, ExitStatus(0)
        run.handle.kill()
        self.room.parts.workers._changed()

    async def be(self, state: WorkerState) -> None:
        """Say how it is."""
        said = Presence(state, at=time.time(), started_at=time.time())
        await self.bus.publish(subjects.status(self.uid), said.encode())

    async def online(self) -> None:
        """Say that it is there; its card is in the registry on return."""
        await self.be(WorkerState.IDLE)
        await self.room.until(lambda: self.uid in [u for u, found in self.room.written if found])
        async with asyncio.timeout(SECONDS):
            while await self.room.bucket(self.uid) is None:  # noqa: ASYNC110 (heard on its way there)
                await asyncio.sleep(0.01)

    async def announce(self, value: Any) -> None:
        await self.bus.publish(subjects.discovery(self.uid), json.dumps(value).encode())

    async def listen(self) -> None:
        async def take(delivery: Delivery) -> None:
            said = priority.decode(delivery.message.payload)
            self.heard.put_nowait((delivery.message.sender_uid, said))
            await delivery.ack()

        await self.bus.consume("PRIORITY", self.uid, take)

    async def next(self) -> tuple[str, PriorityRecord]:
        async with asyncio.timeout(SECONDS):
            return await self.heard.get()

    async def take(self, task: str, *, run: str = "") -> TaskRecord:
        """The first record: the task is taken."""
        return await self._store(task, lambda record: record, run=run)

    async def say(
        self, task: str, state: TaskState, text: str = "", *, run: str = "", **changes: Any
    ) -> TaskRecord:
        def said(record: TaskRecord) -> TaskRecord:
            message = agent_message(record.task, text) if text else None
            event = status_update(record.task, state, time.time(), message)
            return record.then(event, **changes)

        return await self._store(task, said, run=run)

    async def refuse(self, task: str, text: str) -> TaskRecord:
        """A first record that ends it."""

        def refused(record: TaskRecord) -> TaskRecord:
            message = agent_message(record.task, text)
            event = status_update(record.task, TaskState.REJECTED, time.time(), message)
            return TaskRecord(apply(record.task, event), record.request, record.requester)

        return await self._store(task, refused)

    async def answered(self, task: str, answer: Message) -> TaskRecord:
        """It goes on with an answer."""

        def heard(record: TaskRecord) -> TaskRecord:
            event = answer_update(record.task, time.time(), answer)
            return record.then(event, heard=answer)

        return await self._store(task, heard)

    async def make(self, task: str, text: str, name: str = "result") -> TaskRecord:
        """An artifact."""

        def made(record: TaskRecord) -> TaskRecord:
            return record.then(artifact_update(record.task, text_artifact("a1", text, name)))

        return await self._store(task, made)

    async def _store(self, task: str, change: Any, *, run: str = "") -> TaskRecord:
        row = await self.room.row(task)
        before = TaskRecord(
            json.loads(row.snapshot),
            row.request,
            row.requester,
            attempt=row.attempt,
            lost=row.lost,
        )
        changed = change(before)
        after = TaskRecord(
            changed.task,
            changed.request,
            changed.requester,
            changed.event,
            changed.attempt,
            changed.lost,
            run or self.run,
            changed.released,
        )
        stored = await self.bus.publish(
            after.subject(self.uid),
            after.encode(),
            metadata=chain_headers(self.uid, task, row.seq),
        )
        assert stored is not None
        await self.room.parts.fold.reached("TASKS", stored.sequence, SECONDS)
        return after

    async def ask(self, verb: str, **question: Any) -> dict[str, Any]:
        """What the control plane answers on `ctl`."""
        subject = subjects.ctl(self.uid, "tasks", verb)
        answer = await self.bus.request(subject, json.dumps(question).encode(), timeout=SECONDS)
        return json.loads(answer.payload)


@dataclass
class TaskRoom:
    """An organisation, and its API as the operator has it.

    Attributes:
        blocked: what keeps workers from their tasks, by uid, beside what they say themselves.
        written: what came into the registry: (uid, card or None for a deletion), in order.
        later: seconds that the clock of the registry is ahead.
    """

    rig: Rig
    parts: Parts
    api: httpx2.AsyncClient
    site: Site
    blocked: dict[str, str] = field(default_factory=dict)
    written: list[tuple[str, dict[str, Any] | None]] = field(default_factory=list)
    later: float = 0.0
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        known = self.parts.tasks._kept_by
        self.parts.tasks._kept_by = lambda uid: self.blocked.get(uid, "") or known(uid)
        self.parts.states._now = self.parts.registry._now = lambda: time.time() + self.later

    @property
    def owner(self) -> Agent:
        return self.parts.owner

    @property
    def blob_folder(self) -> Path:
        return self.parts.blobs._folder._folder

    async def worker(
        self,
        nick: str,
        *skills: str,
        start: bool = True,
        projects: tuple[str, ...] = (),
        template: str = "",
        **values: str,
    ) -> Hand:
        """A worker with that card; if it does not run, it has that of its template."""
        words = json.dumps(list(skills))
        template = (
            template or f'[worker]\nname="x"\n[workstation]\ncommand=["true"]\nskills={words}\n'
        )
        desired = RUNNING if start else STOPPED

        def add(store: Store, agent: Agent) -> None:
            record = WorkerRecord(
                agent.uid,
                "main",
                template,
                "bubblewrap",
                "",
                desired,
                digest(new_token()),
                time.time(),
                overrides=values,
                origin={BY: OPERATOR_KEY},
            )
            store.workers.add_worker(record)

        agent = await self.parts.directory.register(nick, "worker", projects=projects, also=add)
        hand = Hand(self, agent, await self.rig.agent(agent.uid, projects))
        if start:
            await hand.start(*skills)
        return hand

    async def note(self, message: Stored) -> None:
        async with self._arrived:
            value = json.loads(message.payload) if message.payload else None
            self.written.append((message.subject.rpartition(".")[2], value))
            self._arrived.notify_all()

    async def until(self, happened: Callable[[], Any]) -> Any:
        """Wait until what comes into the registry makes `happened` true."""
        async with asyncio.timeout(SECONDS), self._arrived:
            while not (found := happened()):
                await self._arrived.wait()
            return found

    async def bucket(self, uid: str) -> dict[str, Any] | None:
        """What the bucket holds for a worker, its signature checked and taken off."""
        entry = await Bucket(self.rig.admin.jetstream, CARDS_BUCKET).get(card_key(DEFAULT_ORG, uid))
        if entry is None:
            return None
        return verify_card(json.loads(entry.value), [self.rig.trust.card_key.jwk])

    async def alerts(self) -> list[tuple[str, str]]:
        """Nick and text of every alert that stands, once all of them are folded."""
        await self.folded("ALERTS")
        return [
            (a.who.nick if a.who else "", a.row.text) for a in await self.parts.alerts.standing()
        ]

    async def folded(self, stream: str) -> None:
        last = await self.parts.admin.last_sequence(stream)
        await self.parts.fold.reached(stream, last, SECONDS)

    async def row(self, task: str) -> TaskRow:
        row = await self.parts.database.read(lambda store: store.tasks.task_by_id(task))
        assert row is not None
        return row

    async def delegate(self, to: str, text: str = "do it", **more: Any) -> dict[str, Any]:
        return await self.post("", to=to, text=text, **more)

    async def post(self, path: str, **body: Any) -> dict[str, Any]:
        """What a POST to `/v1/tasks<path>` answers."""
        return _document(await self.api.post(f"/v1/tasks{path}", json=body))

    async def get(self, path: str, **query: Any) -> dict[str, Any]:
        """What a GET of `/v1/tasks<path>` answers."""
        return _document(await self.api.get(f"/v1/tasks{path}", params=query))


def _document(answer: httpx2.Response) -> dict[str, Any]:
    document = answer.json()
    if not answer.is_success:
        assert answer.headers["content-type"] == "application/problem+json"
        assert document["status"] == answer.status_code
    return document


@asynccontextmanager
async def door_of(room: TaskRoom, worker: Hand) -> AsyncGenerator[httpx2.AsyncClient]:
    """What the worker reaches through its door, with its token."""

    room.site.router.admit(worker.uid, "default")

    async def as_worker(scope: Any, receive: Any, send: Any) -> None:
        await room.site.router({**scope, "postroom.worker": worker.uid}, receive, send)

    token = f"token of {worker.agent.nick}"
    await room.parts.database.write(
        lambda store: store.workers.set_token(worker.uid, digest(token))
    )
    transport = httpx2.ASGITransport(as_worker)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(
        transport=transport, base_url="http://postroom", headers=headers
    ) as client:
        yield client


@asynccontextmanager
async def emptied(room: TaskRoom) -> AsyncGenerator[TaskRoom]:
    """A room that a module shares, with nobody but its owner in it; the workers of this test leave at the end."""
    room.later = 0.0
    room.blocked.clear()
    room.written.clear()
    try:
        yield room
    finally:
        for agent, _ in await room.parts.workers.records():
            await room.parts.workers.remove(agent.uid)
        await room.parts.sweep()
        me, inboxes = room.parts.owner.uid, room.parts.inboxes
        unread = await inboxes.newest(me, unread=True, limit=500)
        await inboxes.acknowledge(me, [mail.id for mail in unread], State.SEEN)


@asynccontextmanager
async def task_room(folder: Path, **chosen: Any) -> AsyncGenerator[TaskRoom]:
    """An organisation with a server of its own, and `chosen` settings."""
    memory = bool(chosen.get("memory", True))
    async with running_server(folder, memory=memory) as rig, room_on(folder, rig, **chosen) as room:
        yield room


@asynccontextmanager
async def room_on(folder: Path, rig: Rig, **chosen: Any) -> AsyncGenerator[TaskRoom]:
    """An organisation on the server of `rig`."""
    usual: dict[str, Any] = {"blob_limit": LARGEST_BLOB, "blobs_limit": ALL_BLOBS, "memory": True}
    chosen = usual | {"limit_strangers": 1000} | chosen  # tests ask without keys all the time
    settings = Settings(state=folder, **chosen)
    said = Announcement(
        url="", pid=1, token="", nats_url="", nats_pid=1, started_at="", version="", state=""
    )
    headers = {"Authorization": f"Bearer {KEY}"}
    async with serving() as site, AsyncExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("LOGNAME", "maria")
            installation = await open_installation(
                settings,
                RigHost(rig),
                site.router,
                rig.trust,
                lambda: None,
                stack,
                endpoints=plan(settings),
                certificate=None,
            )
            org = await Organisation.open(
                installation, settings, rig.trust, stack, key=OperatorKey(Path(), KEY)
            )
        rig.core, rig.admin = org.parts.bus, org.parts.admin
        rig.edge = await rig.connect(rig.trust.edge_credential(), CONTROL_PLANE)
        url = f"http://{site.host}"
        await org.go(lambda: replace(said, url=url))
        held: dict[str, list[Any]] = {"response": [contract().hold]}
        async with httpx2.AsyncClient(
            base_url=url,
            headers=headers,
            timeout=SECONDS,
            event_hooks=held,
            verify=False,  # no TLS: to read all authorities takes 17 ms
        ) as api:
            room = TaskRoom(rig, org.parts, api, site)
            tap = await rig.core.subscribe(f"$KV.{CARDS_BUCKET}.{DEFAULT_ORG}.agents.*", room.note)
            yield room
            await tap.close()
