"""The control plane's tasks over a real server: the HTTP API, the verbs, and workers that a test drives by hand."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx2

from postroom.audit import AuditLog
from postroom.audit.view import AuditView
from postroom.blobs.folder import BlobFolder
from postroom.blobs.office import BlobOffice
from postroom.bus.nats.bus import NatsBus
from postroom.bus.port import Delivery
from postroom.control.api import build_api
from postroom.control.context import Context
from postroom.control.crew import Crew
from postroom.control.dispatch import Dispatch
from postroom.control.mailroom import RULES, Mailroom
from postroom.control.principals import Gate
from postroom.control.rotation import Rotation
from postroom.control.services import AgentServices
from postroom.control.statefile import Announcement
from postroom.control.taskverbs import TaskVerbs
from postroom.directory.agents import Directory
from postroom.directory.search import AgentSearch
from postroom.gateway.credentials import Credentials
from postroom.identity.account_publisher import Accounts
from postroom.identity.tokens import digest
from postroom.mail.alerts import AlertOffice
from postroom.mail.clerk import Clerk
from postroom.mail.deadletter_service import DeadLetterService
from postroom.mail.office import PostOffice
from postroom.projection.changes import Changes
from postroom.projection.fold import Fold, all_after
from postroom.protocol import priority, subjects
from postroom.protocol.alerts import Alert
from postroom.protocol.presence import WorkerState
from postroom.protocol.priority import PriorityRecord
from postroom.protocol.tasks import chain_headers
from postroom.settings import Settings
from postroom.store import tasks as store
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.migrate import migrate
from postroom.store.tasks import TaskRow
from postroom.store.workers import RUNNING, WorkerRecord
from postroom.tasks import rules
from postroom.tasks.chain import Chain
from postroom.tasks.clerk import TaskClerk
from postroom.tasks.office import TaskOffice
from postroom.tasks.records import TaskRecord
from postroom.tasks.requests import Requests
from postroom.workers.changed import Changed
from postroom.workers.issuer import Issuer
from postroom.workers.run import Run
from postroom.workers.status import Roster
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
from tests.control.cardroom import CardRoom, card_room
from tests.control.serving import Site, serving
from tests.mail.desk import running
from tests.rig import Rig, running_bus

KEY = "operator-key"
LARGEST_BLOB = 1024 * 1024
ALL_BLOBS = 4 * LARGEST_BLOB
SECONDS = 10.0
LIFETIME = 600.0
"""Seconds that a credential is valid."""


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
        run = self.room.cards.workers.start(self.uid, self.agent.nick, *skills)
        self.run = run.id
        return run

    def end(self) -> None:
        self.room.cards.end(self.uid)

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
        await self.room.fold.reached("TASKS", stored.sequence, SECONDS)
        return after

    async def ask(self, verb: str, **question: Any) -> dict[str, Any]:
        """What the control plane answers on `ctl`."""
        subject = subjects.ctl(self.uid, "tasks", verb)
        answer = await self.bus.request(subject, json.dumps(question).encode(), timeout=SECONDS)
        return json.loads(answer.payload)


@dataclass
class TaskRoom:
    """The parts of a control plane that has tasks; `hindered` is what keeps workers from theirs, by uid."""

    rig: Rig
    database: Database
    cards: CardRoom
    owner: Agent
    directory: Directory
    mailroom: Mailroom
    office: TaskOffice
    api: httpx2.AsyncClient
    site: Site
    hindered: dict[str, str]
    blobs: BlobOffice
    audit: AuditLog

    @property
    def fold(self) -> Fold:
        return self.mailroom.fold

    async def worker(self, nick: str, *skills: str, start: bool = True) -> Hand:
        """A worker with that card; if it does not run, it has that of its template."""
        agent = await self.directory.register(nick, "worker")
        hand = Hand(self, agent, await self.rig.agent(agent.uid))
        words = json.dumps(list(skills))
        template = f'[worker]\nname="x"\n[workstation]\ncommand=["true"]\nskills={words}\n'
        self.cards.workers.stopped.append((agent, _record(agent, template)))
        if start:
            await hand.start(*skills)
        return hand

    async def online(self, hand: Hand) -> None:
        """Let the worker say that it is there."""
        await self.cards.say(hand.bus, WorkerState.IDLE)
        await self.cards.until(
            lambda: hand.uid in [uid for uid, card in self.cards.written if card]
        )

    async def row(self, task: str) -> TaskRow:
        row = await self.database.read(lambda c: store.task_by_id(c, task))
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


def _record(agent: Agent, template: str) -> WorkerRecord:
    return WorkerRecord(
        uid=agent.uid,
        project="main",
        template=template,
        sandbox="none",
        level="",
        desired=RUNNING,
        token_sha256="",
        created_at=time.time(),
    )


async def _no_alert(_: Alert) -> None:
    return


@asynccontextmanager
async def task_room(folder: Path) -> AsyncGenerator[TaskRoom]:
    """A control plane without sandboxes; everything else is real."""
    async with (
        running_bus(folder) as rig,
        Database(None) as database,
        card_room(folder, rig) as cards,
    ):
        await migrate(database)
        room = await _mailroom(rig, database)
        requests = Requests(rig.core, rig.admin, database)
        hindered: dict[str, str] = {}
        office = TaskOffice(
            rig.core,
            database,
            room.changes,
            room.chain,
            requests,
            running=cards.as_workers.running,
            hindrance=lambda uid: hindered.get(uid, ""),
        )
        pages = cards.search(room.directory)
        dispatch = Dispatch(office, requests, room.directory, pages)
        verbs = TaskVerbs(office, database, cards.as_workers, room.tasks_folded, dispatch.choose)
        issuer = Issuer(database, rig.trust, cast("Accounts", None), LIFETIME)
        services = AgentServices(room, issuer, pages, verbs)
        store = BlobFolder(folder / "blobs", largest=LARGEST_BLOB, most=ALL_BLOBS)
        blobs = BlobOffice(database, store, room.tasks_folded)
        await blobs.open()
        credentials = Credentials(folder / "credentials.json")
        audit = AuditLog(Settings(state=folder).audit_file)
        view = AuditView(audit, rig.trust.org)
        context = _context(rig, room, cards, office, dispatch, pages, blobs, credentials, view)
        headers = {"Authorization": f"Bearer {KEY}"}
        await services.open()
        async with running(room.fold.run()), serving(build_api(context)) as site:
            await room.fold.ready(SECONDS)
            url = f"http://{site.host}"
            async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=SECONDS) as api:
                yield TaskRoom(
                    rig,
                    database,
                    cards,
                    room.owner,
                    room.directory,
                    room,
                    office,
                    api,
                    site,
                    hindered,
                    blobs,
                    audit,
                )
            view.close()
            audit.close()
            room.changes.close()
        await services.close()


async def _mailroom(rig: Rig, database: Database) -> Mailroom:
    changes, directory = Changes(), Directory(database)
    clerk, chain = Clerk(rig.core, database), Chain(rig.core, rig.admin, database)
    task_clerk = TaskClerk(rig.core, database, chain, alert=_no_alert)
    after = all_after(clerk.after, task_clerk.after)
    return Mailroom(
        database=database,
        bus=rig.core,
        admin=rig.admin,
        directory=directory,
        owner=await directory.register("maria", "human"),
        changes=changes,
        office=PostOffice(rig.core, rig.admin, database, changes),
        deadletters=DeadLetterService(rig.core, database, changes),
        alerts=AlertOffice(rig.core, rig.admin, database, changes),
        fold=Fold(rig.core, rig.admin, database, changes, RULES, after, rules.ORDER),
        clerk=clerk,
        chain=chain,
        task_clerk=task_clerk,
        space=lambda: None,
        crew=cast("Crew", None),
    )


def _context(
    rig: Rig,
    room: Mailroom,
    cards: CardRoom,
    office: TaskOffice,
    dispatch: Dispatch,
    pages: AgentSearch,
    blobs: BlobOffice,
    credentials: Credentials,
    audit: AuditView,
) -> Context:
    announcement = Announcement(
        url="", pid=1, token="", nats_url="", nats_pid=1, started_at=0.0, version="", state=""
    )
    return Context(
        room=room,
        tasks=office,
        dispatch=dispatch,
        gate=Gate(digest(KEY), room.database),
        workers=cards.as_workers,
        roster=Roster(
            cards.as_workers,
            cards.states,
            cards.presence,
            rig.admin,
            office,
            room.alerts,
            Changed(),
        ),
        pages=pages,
        rotation=cast("Rotation", None),
        keys=rig.trust.key_list,
        blobs=blobs,
        credentials=credentials,
        audit=audit,
        card_key=rig.trust.card_key.jwk,
        announcement=lambda: announcement,
        shut_down=lambda: None,
    )
