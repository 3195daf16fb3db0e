"""A whole post office for tests: bus, database, fold, and agents that talk to it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import select

from postroom.bus.memory import MemoryAdmin, MemoryBroker, MemoryBus
from postroom.bus.port import BusAdmin, Delivery, Message, MessageBusProvider, Stored
from postroom.directory.agents import Directory
from postroom.directory.presence import Callers
from postroom.mail import outbox, projection, views
from postroom.mail.alerts import AlertService
from postroom.mail.clerk import Clerk
from postroom.mail.deadletters import DeadLetterMover, DeadLetterService
from postroom.mail.inbox import Inboxes
from postroom.mail.office import PostOffice
from postroom.mail.outbox import Outbox
from postroom.mail.views import Mail
from postroom.projection.changes import Changes
from postroom.projection.fold import Fold
from postroom.projection.rules import together
from postroom.projection.submit import Submitter
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.receipts import Receipt, State
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS, agent_consumer
from postroom.protocol.streams import STREAMS as STREAM_SPECS
from postroom.store.agents import Agent
from postroom.store.database import Database
from postroom.store.messages import COLUMNS, MessageRow
from postroom.store.migrate import migrate
from postroom_a2a.messages import text_message
from tests.rig import running_bus

SECONDS = 10.0
"""Longest wait in a test."""

NOW = 1_700_000_000.0

BACKENDS = ("memory", "nats")


@dataclass
class Worker:
    """An agent on the bus, as a sidecar would be."""

    agent: Agent
    bus: MessageBusProvider

    @property
    def uid(self) -> str:
        return self.agent.uid

    async def send(self, to: str, text: str = "hello", **fields: Any) -> Envelope:
        message_id = fields.pop("id", secrets.token_hex(16))
        envelope = Envelope(message_id, to, text_message(message_id, text), NOW, **fields)
        await self.store(to, envelope.encode(), message_id)
        return envelope

    async def store(self, to: str, payload: bytes, message_id: str = "") -> Stored | None:
        return await self.bus.publish(subjects.inbox(to, self.uid), payload, id=message_id)

    async def receipt(self, mail: Mail, state: State) -> None:
        report = Receipt(mail.id, self.uid, state, NOW)
        await self.bus.publish(subjects.receipts(mail.sender.uid, self.uid), report.encode())


@dataclass
class Desk:
    """The parts of a running post office."""

    bus: MessageBusProvider
    admin: BusAdmin
    database: Database
    connect: Callable[[str, tuple[str, ...]], Awaitable[MessageBusProvider]]
    changes: Changes = field(default_factory=Changes)

    def __post_init__(self) -> None:
        self.directory = Directory(self.database)
        self.clerk = Clerk(self.bus, self.database)
        self.alerts = AlertService(self.bus, self.admin, self.database, self.changes)
        self.fold = self.new_fold()
        self.submitter = Submitter(self.bus, self.admin)
        self.office = PostOffice(self.submitter, self.database, self.changes)
        self.outbox = Outbox(self.submitter, self.database, self.changes)
        self.callers = Callers(self.database, self.directory)
        self.inboxes = self.new_inboxes()
        self.dead = DeadLetterService(self.bus, self.database, self.changes)
        self.mover = DeadLetterMover(self.bus, self.admin, self.database, self.clerk)

    def new_inboxes(self, callers: Callers | None = None, **more: Any) -> Inboxes:
        """The inboxes as a restart makes them."""
        callers = callers or self.callers
        return Inboxes(self.bus, self.database, self.changes, self.office, callers, **more)

    def new_fold(self, database: Database | None = None) -> Fold:
        """A fold as a restart makes it; of an other database where one is given."""
        target = database or self.database
        clerk = Clerk(self.bus, target) if database else self.clerk
        rules = together(projection.RULES, outbox.RULES)
        return Fold(self.admin, target, self.changes, rules, (clerk.after,), tell=self.alerts.tell)

    async def worker(self, nick: str, projects: tuple[str, ...] = ()) -> Worker:
        agent = await self.directory.register(nick, "worker", projects=projects)
        return Worker(agent, await self.connect(agent.uid, projects))

    async def person(self, nick: str = "maria") -> Agent:
        return await self.directory.register(nick, "human")

    async def mail(self, message_id: str, state: State, timeout: float = SECONDS) -> Mail:
        """The message once it has reached `state` or is final."""

        async def read() -> Mail | None:
            found = [m for m in await self.all_mail() if m.id == message_id]
            return found[0] if found else None

        def there(mail: Mail | None) -> bool:
            return mail is not None and (mail.final or mail.state is state)

        found = await self.changes.until(("message", message_id), read, there, timeout)
        assert found is not None, "the message was not folded in time"
        return found

    async def all_mail(self) -> list[Mail]:
        everything = select(*COLUMNS).order_by("seq")
        return await self.database.read(
            lambda c: views.mails(c, c.session.all(MessageRow, everything))
        )

    async def folded(self) -> None:
        """Return when everything that is in the log now, and what follows from it, is folded."""
        # Twice, since folding INBOX may append to RECEIPTS.
        for stream in (*projection.RULES, *projection.RULES, *outbox.RULES):
            last = await self.admin.last_sequence(stream)
            await self.fold.reached(stream, last, SECONDS)
            if stream == "INBOX":
                await self.clerk.sweep()


D = TypeVar("D", bound=Desk)

Connect = Callable[[str, tuple[str, ...]], Awaitable[MessageBusProvider]]


@asynccontextmanager
async def memory_bus() -> AsyncGenerator[tuple[MessageBusProvider, BusAdmin, Connect], None]:
    """The control plane and agents on a bus in memory."""
    broker = MemoryBroker()
    admin = MemoryAdmin(broker)
    async with AsyncExitStack() as stack:

        def connected(uid: str, projects: tuple[str, ...] = ()) -> MemoryBus:
            bus = MemoryBus(broker, uid, projects=projects)
            stack.push_async_callback(bus.close)
            return bus

        async def agent(uid: str, projects: tuple[str, ...]) -> MemoryBus:
            for stream in AGENT_CONSUMER_STREAMS:
                await admin.ensure_consumer(agent_consumer(stream, uid, projects))
            return connected(uid, projects)

        for spec in STREAM_SPECS:
            await admin.ensure_stream(spec)
        yield connected(CONTROL_PLANE), admin, agent


@asynccontextmanager
async def nats_bus(
    folder: Path,
) -> AsyncGenerator[tuple[MessageBusProvider, BusAdmin, Connect], None]:
    """The same on a server of its own."""
    async with running_bus(folder) as rig:

        async def agent(uid: str, projects: tuple[str, ...]) -> MessageBusProvider:
            return await rig.agent(uid, projects)

        yield rig.core, rig.admin, agent


def running_desk(
    folder: Path, backend: str = "memory", *, fold: bool = True
) -> AbstractAsyncContextManager[Desk]:
    """A post office over a bus of its own; with `fold` it folds."""
    return desk_of(Desk, folder, backend, fold=fold)


@asynccontextmanager
async def desk_of(
    kind: type[D], folder: Path, backend: str, *, fold: bool
) -> AsyncGenerator[D, None]:
    """The same, of that kind."""
    bus = memory_bus() if backend == "memory" else nats_bus(folder / "bus")
    async with bus as (core, admin, connect), Database(folder / "projection.db") as database:
        await migrate(database)
        desk = kind(core, admin, database, connect)
        async with running(desk.fold.run() if fold else None):
            if fold:
                await desk.fold.ready(SECONDS)
            yield desk


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None] | None) -> AsyncGenerator[None, None]:
    """`work` in the background; if it fails, so does the test."""
    if work is None:
        yield
        return
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(work)
        try:
            yield
        finally:
            task.cancel()


@dataclass
class GivenDelivery:
    """A delivery that remembers what became of it."""

    message: Message
    attempt: int = 1
    pending: int = 0
    outcome: str = ""

    async def ack(self, *, confirm: bool = False) -> None:
        self.outcome = "ack"

    async def nak(self, delay: float = 0.0) -> None:
        self.outcome = "nak"

    async def in_progress(self) -> None:
        return

    def set_aside(self) -> None:
        return

    async def term(self, reason: str) -> None:
        self.outcome = "term"


def delivery_of(message: Message) -> Delivery:
    return GivenDelivery(message)
