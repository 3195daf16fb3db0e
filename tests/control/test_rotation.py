"""Keys are replaced while workers work: none is cut, nothing is lost, nobody sees an error."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.bus.external import ExternalBus
from postroom.bus.nats import NatsBus
from postroom.bus.places import parse_servers
from postroom.bus.port import Delivery, Message
from postroom.bus.supervisor import Supervisor
from postroom.control.holders import Holder, holders
from postroom.control.org import connect_edge
from postroom.control.rotation import Rotation
from postroom.errors import Conflict, Unauthorized
from postroom.identity import jwt
from postroom.identity.account_publisher import Accounts, push_accounts
from postroom.identity.jwt import Credential
from postroom.identity.rotating import Role
from postroom.identity.trust import Trust
from postroom.protocol import subjects
from postroom.protocol.ids import CONTROL_PLANE
from postroom.sidecar.bus import CredentialRenewal
from postroom_a2a.nats.port import Frame
from tests.cluster import Node, running_cluster
from tests.gateway.nats.rig import House, Worker, house_before
from tests.mail.desk import running
from tests.rig import Rig, new_uid, running_bus

pytestmark = pytest.mark.anyio

SECONDS = 20.0


class Moving:
    """A worker as the sidecar has it: it renews when it is asked."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.worker: Worker
        self.bus: NatsBus
        self.renewal: CredentialRenewal
        self.taken: Counter[bytes] = Counter()
        self.sent = self.again = 0

    async def open(self) -> None:
        self.worker = await self.house.worker()
        self.bus = await self.house.client(self.worker)
        self.renewal = CredentialRenewal(
            self.bus, self.uid, expires_at=time.time() + 3600, accept=self._accept
        )
        self.bus.mailbox.route(f"_I.{self.uid}.{CONTROL_PLANE}", self._asked)
        await self.bus.consume("INBOX", self.uid, self._take)

    def _asked(self, _frame: Frame) -> None:
        self.renewal.ask()

    async def _accept(self, token: str, seconds: float) -> None:
        self.worker.credential = Credential(token, self.worker.credential.seed)
        await self.bus.renew(timeout=seconds)

    async def _take(self, delivery: Delivery) -> None:
        # A server that ends takes acknowledgements with it: what it hands over again, it says so of.
        if delivery.attempt == 1 or not self.taken[delivery.message.payload]:
            self.taken[delivery.message.payload] += 1
        self.again += delivery.attempt > 1
        await delivery.ack()

    @property
    def uid(self) -> str:
        return self.worker.uid

    async def send(self, to: Moving, stop: asyncio.Event) -> None:
        subject = subjects.inbox(to.uid, self.uid)
        while not stop.is_set():
            number = self.sent
            await self.bus.publish(subject, b"%d" % number, id=f"{self.uid}-{number}", timeout=15)
            self.sent += 1

    @property
    def issuer(self) -> str:
        return str(jwt.decode(self.worker.credential.jwt)["iss"])


class Desk:
    """Two workers that write to each other, and who rotates."""

    def __init__(
        self,
        rig: Rig,
        host: Supervisor,
        renew: Callable[[], Awaitable[None]],
        one: Moving,
        two: Moving,
    ) -> None:
        self.rig, self.host, self.one, self.two = rig, host, one, two
        self.house = one.house
        self.accounts = Accounts(rig.trust, host)
        self.rotation = Rotation(
            rig.trust, host, self.accounts, renew, move_timeout=10, sign=_nothing
        )

    async def connected(self) -> list[Holder]:
        """The workers' connections with what they hang on."""
        keys = {key["key"] for key in self.rig.trust.key_list()}
        return await holders(self.rig.trust, self.host, keys)

    async def rotate_under_load(self, *kinds: str) -> None:
        """Rotate while both write; everything sent is taken once."""
        async with self.load():
            for kind in kinds:
                assert (await self.rotation.rotate(kind)).cut == ()

    @asynccontextmanager
    async def load(self) -> AsyncGenerator[None]:
        """Both write; in the end everything sent was taken once."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.one.send(self.two, stop))
            tasks.create_task(self.two.send(self.one, stop))
            yield
            stop.set()
        async with asyncio.timeout(SECONDS):
            for to, by in ((self.one, self.two), (self.two, self.one)):
                while len(to.taken) < by.sent:  # noqa: ASYNC110 (counted by handlers)
                    await asyncio.sleep(0.01)
        assert self.one.sent
        assert set(self.one.taken.values()) | set(self.two.taken.values()) == {1}
        # What a server says while it ends, or before it knows the accounts again, is no failure of a call: the pull is
        # made again.
        passing = ("Server Shutdown", "cannot pull from")
        assert [e for e in self.rig.errors if not any(word in str(e) for word in passing)] == []


@asynccontextmanager
async def desk(folder: Path) -> AsyncGenerator[Desk]:
    async with running_bus(folder, memory=False) as rig, house_before(rig) as house:
        # The rig's server under the supervisor's care.
        await rig.stop()
        host = Supervisor(replace(rig.server.config, proxies=rig.trust.proxies))
        rig.server = await host.start()
        await rig.edge.close()
        _, renew_edge = await connect_edge(rig.trust, host, rig.stack)
        one, two = Moving(house), Moving(house)

        async def renew(message: Message) -> bytes:
            uid = subjects.parse(message.subject).sender
            key = next(each.worker for each in (one, two) if each.uid == uid).credential.public
            token = rig.trust.renew(key, uid, (), lifetime=3600.0, now=time.time(), proxied=True)
            return json.dumps({"jwt": token, "expires_at": time.time() + 3600}).encode()

        await rig.core.serve(subjects.ctl("*", ">"), renew, queue="ctl")
        await one.open()
        await two.open()
        async with running(one.renewal.run()), running(two.renewal.run()):
            supervising = asyncio.create_task(host.run())
            try:
                rig.errors.clear()
                yield Desk(rig, host, renew_edge, one, two)
            finally:
                await host.stop()
                await supervising


@pytest.mark.requirement("identity-rotation-seamless")
async def test_the_key_that_signs_workers_is_replaced_under_load(tmp_path: Path):
    async with desk(tmp_path) as d:
        stolen = d.rig.credential(new_uid())
        before = d.one.issuer

        await d.rotate_under_load("agents", "account")

        assert d.one.issuer == d.two.issuer != before
        assert "former" not in {key["state"] for key in d.rig.trust.key_list()}
        assert d.one.bus.statistics().reconnects == 0
        with pytest.raises(Unauthorized):  # under the former key nobody comes in any more
            await d.rig.connect(stolen, stolen.name)


@pytest.mark.requirement("identity-rotation-seamless")
async def test_the_operators_key_is_replaced_under_load(tmp_path: Path):
    async with desk(tmp_path) as d:
        await d.rotate_under_load("operator")
        first = {k["key"] for k in d.rig.trust.key_list() if k["role"] == "operator"}
        await d.rotate_under_load("operator")

        present = {k["key"] for k in d.rig.trust.key_list() if k["role"] == "operator"}
        assert len(first & present) == 1  # the identity
        assert d.one.bus.lost is None


@pytest.mark.requirement("identity-rotation-seamless")
async def test_the_gateways_key_is_replaced_while_the_server_runs_on(tmp_path: Path):
    async with desk(tmp_path) as d:
        pid = d.rotation._host.pid
        former = d.rig.trust.proxy_key.public

        await d.rotate_under_load("proxy")

        present = d.rig.trust.proxy_key.public
        assert d.rotation._host.pid == pid
        assert former != present
        assert d.rig.trust.proxies == (present,)
        assert {worker.uid for worker in await d.connected() if present in worker.keys} == {
            d.one.uid,
            d.two.uid,
        }
        assert [each.bus.statistics().reconnects for each in (d.one, d.two)] == [0, 0]


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_revocations_of_others_disturb_no_pull_and_no_publish(tmp_path: Path):
    """Each restart of a worker revokes what it had, and every server is told."""
    async with desk(tmp_path) as d:
        async with d.load():
            for _ in range(10):
                revoked = d.rig.credential(new_uid()).public
                d.rig.trust.revoke({revoked: time.time() + 600}, now=time.time())
                await d.accounts.publish()
        assert [each.bus.statistics().reconnects for each in (d.one, d.two)] == [0, 0]
        assert d.one.again + d.two.again == 0


@pytest.mark.slow
async def test_who_does_not_move_in_time_is_named_and_cut(tmp_path: Path):
    async with desk(tmp_path) as d:
        d.rotation._move_timeout = 0.5
        silent = new_uid()
        bus = await d.rig.connect(d.rig.credential(silent), silent)

        rotated = await d.rotation.rotate("agents")

        assert rotated.cut == (silent,)
        async with asyncio.timeout(SECONDS):
            # The server first applies the limits of no key at all, then asks who it is.
            while bus.lost is None and Unauthorized not in map(type, d.rig.errors):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert silent not in {holder.uid for holder in await d.connected()}


async def test_who_does_not_move_from_a_former_key_of_the_gateway_is_named_and_cut(tmp_path: Path):
    async with desk(tmp_path) as d:
        d.rotation._move_timeout = 0.5
        worker = await d.house.worker()
        bus = await d.house.client(worker)

        rotated = await d.rotation.rotate("proxy")

        assert worker.uid in rotated.cut
        async with asyncio.timeout(SECONDS):
            assert isinstance(await bus.wait_lost(), Unauthorized)


@pytest.mark.requirement("identity-rotation-seamless")
async def test_servers_of_somebody_else_must_know_a_key_before_it_is_used(tmp_path: Path):
    trust = Trust.load_or_create(tmp_path / "keys")
    async with running_cluster(tmp_path / "cluster", trust) as cluster:
        async with cluster.system() as system:
            await push_accounts(system, trust)
        credential = trust.system_credential()
        host = ExternalBus(
            parse_servers(cluster.urls),
            credential.for_connection(),
            lambda: trust.proxy_key.public,
        )
        try:
            await host.start()
            rotation = Rotation(trust, host, Accounts(trust, host), _nothing, sign=_nothing)
            present, before = trust.proxy_key.public, trust.signers

            for kind in ("proxy", "operator"):
                with pytest.raises(Conflict, match="do not know") as refused:
                    await rotation.rotate(kind)
                assert f"postroom keys rotate --{kind}" in refused.value.remedy
            assert trust.proxy_key.public == present
            coming = trust.proxies[1]
            assert len(trust.signers) == len(before) + 1

            for node in cluster.nodes[:2]:
                _reconfigure(node, trust)
            with pytest.raises(Conflict):  # one does not know it yet
                await rotation.rotate("proxy")
            _reconfigure(cluster.nodes[2], trust)
            async with asyncio.timeout(SECONDS):
                while not await host.trust_proxies(trust.proxies):  # noqa: ASYNC110 (SIGHUP)
                    await asyncio.sleep(0.05)

            rotated = await rotation.rotate("proxy")

            assert rotated.roles == ("proxy",)
            assert rotated.steps
            assert trust.proxies == (coming,)
        finally:
            await host.stop()


def _reconfigure(node: Node, trust: Trust) -> None:
    node.config["proxies"] = {"trusted": [{"key": key} for key in trust.proxies]}
    node.reload()


async def _nothing() -> None:
    pass


@pytest.mark.requirement("identity-rotation-seamless")
def test_a_former_key_that_a_crash_has_left_is_dropped_by_the_next_start(tmp_path: Path):
    killed = Trust.load_or_create(tmp_path)
    killed.add_org("acme").rotate(Role.WORKERS)
    killed.rotate(*Role)
    assert killed.former_keys(*Role)

    trust = Trust.load_or_create(tmp_path)
    trust.settle()

    again = Trust.load_or_create(tmp_path)
    assert {trust.former_keys(*Role), again.of("acme").former_keys(*Role)} == {()}
    assert again.key_list() == trust.key_list()
    assert again.proxies == (killed.proxy_key.public,)
