"""A connection is replaced by another while everything goes on: nothing lost, nothing twice, no failure seen."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from postroom.bus.nats import NatsBus
from postroom.bus.port import Delivery, Message
from postroom.errors import BusDisconnected, NoResponders, Unauthorized
from postroom.identity.jwt import Credential
from postroom.identity.nkeys import KeyPair, Kind
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS, agent_consumer
from tests.bus.contract import TIMEOUT, Taken
from tests.rig import Rig, new_uid, running_bus

pytestmark = pytest.mark.anyio

RENEWALS = 12
PAUSE = 0.001
"""Seconds between two messages of one sender: an inbox takes `INBOX_PER_PAIR` from it, and acknowledged ones count."""


class Renewable:
    """An agent whose credential can be replaced."""

    def __init__(self, rig: Rig, uid: str, lifetime: float) -> None:
        self.rig, self.uid, self.lifetime = rig, uid, lifetime
        self.credential = rig.trust.mint_agent(uid, (), lifetime=lifetime, now=time.time())
        self.key = KeyPair.from_seed(self.credential.seed)
        self.bus: NatsBus

    async def open(self) -> None:
        for stream in AGENT_CONSUMER_STREAMS:
            await self.rig.admin.ensure_consumer(agent_consumer(stream, self.uid, ()))
        self.bus = await NatsBus.connect(
            self.rig.url,
            uid=self.uid,
            jwt=lambda: self.credential.jwt,
            sign=self.sign,
            on_error=self.rig.errors.append,
        )
        self.rig.stack.push_async_callback(self.bus.close)

    def sign(self, nonce: bytes) -> bytes:
        return self.key.sign(nonce)

    async def renew(self, *, timeout: float = TIMEOUT) -> None:
        jwt = self.rig.trust.renew(
            self.key.public, self.uid, (), lifetime=self.lifetime, now=time.time()
        )
        self.credential = Credential(jwt, self.credential.seed)
        await self.bus.renew(timeout=timeout)


@asynccontextmanager
async def renewable(rig: Rig, lifetime: float = 3600.0) -> AsyncGenerator[Renewable]:
    agent = Renewable(rig, new_uid(), lifetime)
    await agent.open()
    yield agent


class Traffic:
    """Everything that goes to and from one agent, counted."""

    def __init__(self, rig: Rig, agent: NatsBus, peer: NatsBus) -> None:
        self.rig, self.agent, self.peer = rig, agent, peer
        self.taken: Counter[bytes] = Counter()
        self.order: list[int] = []
        self.attempts: Counter[int] = Counter()
        self.sent: list[bytes] = []
        self.served: Counter[bytes] = Counter()
        self.asked: list[bytes] = []
        self.heard: list[bytes] = []
        self.told: list[bytes] = []
        self.stop = asyncio.Event()

    async def open(self) -> None:
        await self.agent.consume("INBOX", self.agent.uid, self._take)
        await self.agent.serve(subjects.rpc(self.agent.uid, "*"), self._serve, queue="rpc")

    async def _take(self, delivery: Delivery) -> None:
        self.taken[delivery.message.payload] += 1
        self.order.append(int(delivery.message.payload))
        self.attempts[delivery.attempt] += 1
        await delivery.ack()

    async def _serve(self, request: Message) -> bytes:
        self.served[request.payload] += 1
        return request.payload

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for work in (self._send, self._ask, self._ask, self._reply):
                tasks.create_task(work())

    async def _send(self) -> None:
        for number in itertools.count():
            if self.stop.is_set():
                return
            payload = str(number).encode()
            await self.peer.publish(subjects.inbox(self.agent.uid, self.peer.uid), payload)
            self.sent.append(payload)
            await asyncio.sleep(PAUSE)

    async def _ask(self) -> None:
        for number in itertools.count():
            if self.stop.is_set():
                return
            payload = f"{id(asyncio.current_task())} {number}".encode()
            subject = subjects.rpc(self.agent.uid, self.peer.uid)
            answer = await self.peer.request(subject, payload)
            assert answer.payload == payload
            self.asked.append(payload)

    async def _reply(self) -> None:
        """The agent writes to its peer."""
        for number in itertools.count():
            if self.stop.is_set():
                return
            payload = f"r{number}".encode()
            await self.agent.publish(subjects.inbox(self.peer.uid, self.agent.uid), payload)
            self.told.append(payload)
            await asyncio.sleep(PAUSE)

    async def finished(self) -> None:
        """Everything that was sent has been taken."""
        async with asyncio.timeout(TIMEOUT):
            while len(self.taken) < len(self.sent):  # noqa: ASYNC110 (counted by handlers)
                await asyncio.sleep(0.01)
            while await self.rig.admin.pending("INBOX", self.agent.uid) != (0, 0):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def check(self) -> None:
        assert self.taken == Counter(self.sent)
        assert self.order == sorted(self.order)
        assert set(self.attempts) == {1}
        assert self.served == Counter(self.asked)


@pytest.mark.requirement("identity-rotation-seamless")
async def test_credentials_of_two_seconds_are_renewed_under_load_without_a_gap(tmp_path: Path):
    async with running_bus(tmp_path) as rig, renewable(rig, 2.0) as agent, renewable(rig) as peer:
        traffic = Traffic(rig, agent.bus, peer.bus)
        await traffic.open()
        until = time.time() + 4.5  # more than two lifetimes
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(traffic.run())
            while time.time() < until:
                await agent.renew()
                await asyncio.wait({running}, timeout=0.1)
            traffic.stop.set()
        await traffic.finished()

        traffic.check()
        assert rig.errors == []
        assert agent.bus.statistics().reconnects == 0
        info = (await rig.admin.pending("INBOX", peer.uid))[0]
        assert info == len(traffic.told)


@pytest.mark.requirement("identity-rotation-seamless")
async def test_a_live_subscription_hears_each_message_once_and_in_order_over_renewals(
    tmp_path: Path,
):
    async with running_bus(tmp_path) as rig:
        uids = [new_uid() for _ in range(3)]
        talkers = [await rig.agent(uid) for uid in uids]
        heard: list[tuple[str, int]] = []

        async def hear(message: Message) -> None:
            heard.append((message.sender_uid, int(message.payload)))

        credential = rig.trust.edge_credential()
        listener = await rig.connect(credential, CONTROL_PLANE)
        await listener.subscribe("system.discovery.*", hear)
        stop = asyncio.Event()
        said: Counter[str] = Counter()

        async def talk(bus: NatsBus) -> None:
            while not stop.is_set():
                await bus.publish(subjects.discovery(bus.uid), str(said[bus.uid]).encode())
                said[bus.uid] += 1

        async with asyncio.TaskGroup() as tasks:
            for bus in talkers:
                tasks.create_task(talk(bus))
            for _ in range(RENEWALS):
                await listener.renew(timeout=TIMEOUT)
            stop.set()
        async with asyncio.timeout(TIMEOUT):
            while len(heard) < said.total():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

        for uid in uids:
            assert [number for by, number in heard if by == uid] == list(range(said[uid]))


@pytest.mark.requirement("identity-rotation-seamless")
async def test_the_former_connection_has_ended_in_time_even_if_the_server_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What the former connection is asked is never answered, as if its server hung."""
    async with running_bus(tmp_path) as rig, renewable(rig) as agent, renewable(rig) as peer:
        taken = Taken()
        await agent.bus.consume("INBOX", agent.uid, taken)
        former = agent.bus._link.connection._session
        assert former is not None
        monkeypatch.setattr(former, "ping", asyncio.get_running_loop().create_future)
        began = asyncio.get_running_loop().time()

        await agent.renew(timeout=1.0)

        assert asyncio.get_running_loop().time() - began < 5.0
        assert not former.up
        await peer.bus.publish(subjects.inbox(agent.uid, peer.uid), b"x")
        assert (await taken.acked()).payload == b"x"


@pytest.mark.requirement("identity-rotation-seamless")
async def test_a_refused_credential_leaves_the_former_connection_in_use(tmp_path: Path):
    async with running_bus(tmp_path) as rig, renewable(rig) as agent:
        good, agent.key = agent.key, KeyPair.generate(Kind.USER)

        with pytest.raises(Unauthorized):
            await agent.bus.renew(timeout=TIMEOUT)

        agent.key = good
        assert agent.bus.lost is None
        assert rig.errors == []
        await agent.bus.publish(subjects.inbox(new_uid(), agent.uid), b"x")
        await agent.renew()


async def test_a_server_that_takes_no_new_connection_leaves_the_former_one_in_use(tmp_path: Path):
    async with running_bus(tmp_path) as rig, renewable(rig) as agent:
        os.kill(rig.server.pid, signal.SIGSTOP)
        try:
            with pytest.raises(BusDisconnected):
                await agent.bus.renew(timeout=0.5)
        finally:
            os.kill(rig.server.pid, signal.SIGCONT)

        await agent.bus.publish(subjects.inbox(new_uid(), agent.uid), b"x")


async def test_a_renewal_during_an_outage_waits_for_the_server(tmp_path: Path):
    async with running_bus(tmp_path, memory=False) as rig, renewable(rig) as agent:
        await rig.stop(kill=True)
        renewing = asyncio.create_task(agent.renew(timeout=30))
        await rig.start()

        await renewing

        await agent.bus.publish(subjects.inbox(new_uid(), agent.uid), b"x")
        assert agent.bus.lost is None


@pytest.mark.requirement("identity-rotation-seamless")
async def test_a_subscription_opened_or_closed_while_a_connection_takes_over_is_right(
    tmp_path: Path,
):
    async with running_bus(tmp_path) as rig, renewable(rig) as agent, renewable(rig) as peer:

        async def echo(request: Message) -> bytes:
            return request.payload

        renewing = asyncio.create_task(_keep_renewing(agent))
        for number in range(50):
            served = await agent.bus.serve(subjects.rpc(agent.uid, "*"), echo, queue="rpc")
            subject = subjects.rpc(agent.uid, peer.uid)
            assert (await peer.bus.request(subject, b"%d" % number)).payload == b"%d" % number
            await served.close()
        renewing.cancel()
        await asyncio.wait({renewing})

        await agent.renew()
        with pytest.raises(NoResponders):
            await peer.bus.request(subjects.rpc(agent.uid, peer.uid), b"x")


async def _keep_renewing(agent: Renewable) -> None:
    while True:
        await agent.renew()
