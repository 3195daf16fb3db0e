"""Tasks whose changes a test stores as the fold does, and what pushes them; nothing else of a post room."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from postroom.directory.agents import Directory
from postroom.http.outbound import OutboundPolicy, client_context
from postroom.identity.sealing import Sealer
from postroom.projection.changes import Change, Changes
from postroom.protocol.alerts import Alert
from postroom.protocol.principal import KEY, USUAL_SCOPES, Principal
from postroom.push.configs import AgentPushes
from postroom.push.pusher import Pusher
from postroom.store.agents import Agent
from postroom.store.alerts import AlertRow
from postroom.store.database import Database, Store
from postroom.store.ports import TaskEventRow, TaskRow
from postroom.store.pushes import PushRow
from postroom.webhooks.sender import Schedule, Sender
from postroom.webhooks.signing import WebhookKey
from postroom_a2a.service import PushConfig
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import (
    agent_message,
    apply,
    artifact_update,
    new_task,
    status_update,
    text_artifact,
)
from tests.rig import new_uid
from tests.supervised import supervised

KEY_OF_ALL = WebhookKey.derive("secret", "default")
SECONDS = 20.0
PAUSES = (60.0, 600.0)


@dataclass
class Clock:
    """What time it is, as a test says."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass
class Tasks:
    """An organisation with one worker, whose tasks change as a test says."""

    database: Database
    worker: Agent
    anna: Agent
    bert: Agent
    clock: Clock = field(default_factory=Clock)
    changes: Changes = field(default_factory=Changes)
    alerts: list[Alert] = field(default_factory=list)
    seq: int = 0
    deadline: float = 5.0
    sealing: Path = field(default_factory=lambda: Path(tempfile.mkdtemp()) / "sealing.key")
    pusher: Pusher = field(init=False)

    def __post_init__(self) -> None:
        self.pusher = self._pusher()

    def _pusher(self) -> Pusher:
        # Every place of this machine is open.
        policy = OutboundPolicy.parse(())
        sender = Sender(policy, client_context, deadline=self.deadline)
        return Pusher(
            self.database,
            self.changes,
            sender,
            KEY_OF_ALL,
            Sealer(self.sealing),
            self._alert,
            schedule=Schedule(PAUSES, lambda least, _: least),
            clock=self.clock,
        )

    async def _alert(self, alert: Alert) -> None:
        self.alerts.append(alert)
        await self.database.write(lambda store: _raised(store, alert))

    @asynccontextmanager
    async def pushing(self, *places: str) -> AsyncGenerator[Pusher]:
        """What pushes, from its start to an end in the middle of whatever it does.

        Args:
            places: that the operator has opened.
        """
        self.changes = Changes()
        self.pusher = self._pusher()
        self.pusher.sender._policy = OutboundPolicy.parse(places)
        async with supervised(self.pusher.run, self.pusher.push):
            yield self.pusher

    def later(self, seconds: float) -> None:
        """Let that much time pass."""
        self.clock.ahead += seconds
        self.pusher._lanes._more.set()

    async def task(self, requester: Agent | None = None) -> str:
        """A new task."""
        self.seq += 1
        named, requester = new_uid(), requester or self.anna
        asked = {"messageId": named, "role": "ROLE_USER", "parts": [{"text": "do it"}]}
        row = TaskRow(
            id=named,
            worker=self.worker.uid,
            requester=requester.uid,
            request=named,
            requested_seq=self.seq,
            context_id=named,
            text="do it",
            created_at=self.clock(),
            updated_at=self.clock(),
            snapshot=json.dumps(new_task(named, named, asked, self.clock())),
        )
        await self.database.fold(lambda store: store.tasks.insert_task(row))
        return named

    async def say(self, task: str, *said: str) -> None:
        """Store changes, each a state or the text of an artifact, and tell of them after the commit."""
        folded = await self.store(task, *said)
        self.changes.publish(folded)

    async def store(self, task: str, *said: str) -> list[Change]:
        """As `say`, and the process ends before it has told anybody."""
        return await self.database.fold(
            lambda store: [self._change(store, task, word) for word in said]
        )

    def _change(self, store: Store, task: str, word: str) -> Change:
        self.seq += 1
        before = store.tasks.task_by_id(task)
        assert before is not None
        whole: dict[str, Any] = json.loads(before.snapshot)
        try:
            state = TaskState(word)
            message = agent_message(whole, f"it is {word}")
            event = status_update(whole, state, self.clock(), message)
        except ValueError:
            state = TaskState(before.state)
            event = artifact_update(whole, text_artifact(f"a{self.seq}", word, "result"))
        row = replace(
            before,
            state=state.value,
            seq=self.seq,
            final=state.terminal,
            snapshot=json.dumps(apply(whole, event)),
            snapshot_seq=self.seq,
        )
        change = TaskEventRow(
            self.seq, task, row.worker, row.state, 1, "", self.clock(), json.dumps(event)
        )
        store.tasks.record_change(row, change)
        return Change("task", self.seq, task, row.requester, row.worker, state=row.state, row=row)

    def configs(self, agent: Agent | None = None, key: str = "") -> AgentPushes:
        """The configs of a caller."""
        who = agent or self.anna
        me = Principal(who.uid, who.org, who.nick, who.kind, USUAL_SCOPES, KEY, key)
        return AgentPushes(self.pusher, self.database, self.worker, me, self.clock)

    async def push_to(self, url: str, task: str, *, after: int | None = 0, **more: Any) -> str:
        """A new config of Anna's; returns its id."""
        made = await self.configs().create(PushConfig(task, url, **more), "", after=after)
        return made.id

    async def pushes(self, task: str) -> list[PushRow]:
        """All pushes of a task."""

        def find(store: Store) -> list[PushRow]:
            keys = [config.key for config in store.pushes.of_task(task)]
            return store.pushes.about(task, keys, after=0, limit=500)

        return await self.database.read(find)

    async def alerted(self, count: int) -> list[Alert]:
        """The alerts, once there are so many: each comes after what it tells of is written down."""
        async with asyncio.timeout(SECONDS):
            while len(self.alerts) < count:  # noqa: ASYNC110 (they are few, and come soon)
                await asyncio.sleep(0.01)
        return self.alerts

    async def until(self, task: str, *states: str, attempts: int = 0) -> list[PushRow]:
        """Wait until the pushes of a task are in those states, in their order, the first after so many attempts."""
        async with asyncio.timeout(SECONDS):
            while True:
                found = await self.pushes(task)
                tried = not found or found[0].attempts >= attempts
                if [row.state for row in found] == list(states) and tried:
                    return found
                await asyncio.sleep(0.01)


def _raised(store: Store, alert: Alert) -> None:
    at = time.time()
    if alert.text:
        row = AlertRow(
            int(at * 1e6),
            int(at * 1e6),
            "-",
            alert.kind,
            alert.about,
            alert.who,
            alert.text,
            at,
            at,
        )
        store.alerts.raised(row)


@asynccontextmanager
async def tasks_in(database: Database) -> AsyncGenerator[Tasks]:
    """An organisation in that database, which has all tables."""
    directory = Directory(database, org="default")
    worker = await directory.register("bob", "worker")
    anna = await directory.register("anna", "human")
    bert = await directory.register("bert", "external")
    yield Tasks(database, worker, anna, bert)
