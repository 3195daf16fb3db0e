"""The two implementations of the bus behind one face, so that one suite runs over both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from postroom.bus.memory import MemoryAdmin, MemoryBroker, MemoryBus
from postroom.bus.nats import NatsBus, ensure_all
from postroom.bus.port import BusAdmin, Delivery, Message, MessageBusProvider
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.intervals import DELIVERY_BEAT
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS, ConsumerSpec, agent_consumer
from tests.rig import Rig, new_uid, running_bus

TIMEOUT = 10
"""Seconds after which a test gives up waiting for something that should happen at once."""


class Pair(Protocol):
    """A bus with the control plane and two agents, alice and bob; both are in the project `main`."""

    core: MessageBusProvider
    admin: BusAdmin
    alice: MessageBusProvider
    bob: MessageBusProvider

    async def agent(
        self, uid: str = "", projects: Sequence[str] = ("main",), *, beat: float = DELIVERY_BEAT
    ) -> MessageBusProvider:
        """A further connection of an agent."""

    async def cut(self, bus: MessageBusProvider) -> None:
        """End a connection as a killed process does: nothing is finished or given back."""


@dataclass
class MemoryPair:
    """Over `MemoryBroker`."""

    stack: AsyncExitStack
    broker: MemoryBroker
    core: MessageBusProvider
    admin: BusAdmin
    alice: MessageBusProvider
    bob: MessageBusProvider

    async def agent(
        self, uid: str = "", projects: Sequence[str] = ("main",), *, beat: float = DELIVERY_BEAT
    ) -> MessageBusProvider:
        uid = uid or new_uid()
        bus = MemoryBus(self.broker, uid, projects=projects, beat=beat)
        self.stack.push_async_callback(bus.close)
        return bus

    async def cut(self, bus: MessageBusProvider) -> None:
        assert isinstance(bus, MemoryBus)
        await bus.cut()


@dataclass
class NatsPair:
    """Over a real server, with the two accounts."""

    rig: Rig
    core: MessageBusProvider
    admin: BusAdmin
    alice: MessageBusProvider
    bob: MessageBusProvider

    async def agent(
        self, uid: str = "", projects: Sequence[str] = ("main",), *, beat: float = DELIVERY_BEAT
    ) -> MessageBusProvider:
        uid = uid or new_uid()
        credential = self.rig.credential(uid, projects)
        return await self.rig.connect(credential, uid, projects=projects, beat=beat)

    async def cut(self, bus: MessageBusProvider) -> None:
        assert isinstance(bus, NatsBus)
        await bus._link.close()


async def _agents(pair: Pair) -> None:
    pair.alice, pair.bob = await pair.agent(), await pair.agent()
    for bus in (pair.alice, pair.bob):
        for stream in AGENT_CONSUMER_STREAMS:
            await pair.admin.ensure_consumer(agent_consumer(stream, bus.uid, ("main",)))


@asynccontextmanager
async def memory_pair() -> AsyncGenerator[MemoryPair]:
    async with AsyncExitStack() as stack:
        broker = MemoryBroker()
        core, admin = MemoryBus(broker, CONTROL_PLANE), MemoryAdmin(broker)
        stack.push_async_callback(core.close)
        await ensure_all(admin)
        pair = MemoryPair(stack, broker, core, admin, core, core)
        await _agents(pair)
        yield pair


@asynccontextmanager
async def nats_pair(folder: Path) -> AsyncGenerator[NatsPair]:
    async with running_bus(folder) as rig:
        pair = NatsPair(rig, rig.core, rig.admin, rig.core, rig.core)
        await _agents(pair)
        yield pair


class Taken:
    """A handler that keeps deliveries, open, until the test asks for them."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue()
        self.count = 0

    async def __call__(self, delivery: Delivery) -> None:
        self.count += 1
        self._queue.put_nowait(delivery)

    async def next(self, timeout: float = TIMEOUT) -> Delivery:
        return await asyncio.wait_for(self._queue.get(), timeout)

    async def acked(self) -> Message:
        """The next delivery's message, acknowledged."""
        delivery = await self.next()
        await delivery.ack(confirm=True)
        return delivery.message


class Heard:
    """A handler that keeps live messages until the test asks for them."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Message] = asyncio.Queue()
        self.count = 0

    async def __call__(self, message: Message) -> None:
        self.count += 1
        self._queue.put_nowait(message)

    async def next(self) -> Message:
        return await asyncio.wait_for(self._queue.get(), TIMEOUT)


def impatient(uid: str, *, ack_wait: float = 0.3, max_deliver: int = 3) -> ConsumerSpec:
    """The inbox consumer of an agent, with less patience than in production."""
    return replace(agent_consumer("INBOX", uid), ack_wait=ack_wait, max_deliver=max_deliver)
