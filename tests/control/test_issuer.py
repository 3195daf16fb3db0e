"""The register of credentials, and how the servers hear of a revocation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from postroom.bus.address import BusAddress
from postroom.bus.nats import NatsBus
from postroom.errors import BusDisconnected, Forbidden, ServerFailed, Unauthorized
from postroom.identity.account_publisher import BEHIND, Accounts
from postroom.identity.jwt import Credential
from postroom.observe import supervision
from postroom.protocol.alerts import Alert
from postroom.store.database import Database
from postroom.store.migrate import migrate
from postroom.workers.parts import Issuer
from tests.gateway.nats.rig import House, Worker, house_before
from tests.rig import Rig, new_uid, running_server
from tests.supervised import supervised

pytestmark = pytest.mark.anyio

SECONDS = 20.0


class Register:
    """Credentials over a real server; `alerts` are what a person would see."""

    def __init__(self, rig: Rig, database: Database, house: House) -> None:
        self.house = house
        self.doors: dict[str, Worker] = {}
        self.rig = rig
        self.database = database
        self.alerts: list[str] = []
        self.alerted = asyncio.Event()
        self.accounts = Accounts(rig.trust, self)  # ty: ignore[invalid-argument-type]
        self.issuer = Issuer(database, rig.trust, self.accounts, 600.0)

    @property
    def address(self) -> BusAddress:
        return BusAddress((self.rig.url,))

    async def alert(self, alert: Alert) -> None:
        self.alerts.append(alert.kind if alert.text else f"{alert.kind} is over")
        self.alerted.set()

    async def enter(self, credential: Credential) -> NatsBus:
        uid = credential.name
        if uid not in self.doors:
            self.doors[uid] = await self.house.worker(uid=uid, consumers=False)
        return await self.house.client(replace(self.doors[uid], credential=credential))


@asynccontextmanager
async def register(folder: Path) -> AsyncGenerator[Register]:
    async with running_server(folder, memory=False) as rig, Database(None) as database:
        await migrate(database)
        async with house_before(rig) as house:
            yield Register(rig, database, house)


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_every_credential_that_an_agent_ever_got_is_void_and_others_stay(tmp_path: Path):
    async with register(tmp_path) as desk:
        alice, bob = new_uid(), new_uid()
        issued = [await desk.issuer.issue(alice, ()) for _ in range(3)]
        entered = [await desk.enter(each) for each in issued]
        other = await desk.enter(await desk.issuer.issue(bob, ()))

        async with asyncio.timeout(2):
            assert await desk.issuer.void(alice) == 3
            lost = await asyncio.gather(*(bus.wait_lost() for bus in entered))

        assert all(isinstance(error, Unauthorized) for error in lost)
        for each in issued:
            with pytest.raises(Unauthorized):
                await desk.enter(each)
        assert other.lost is None
        assert await desk.issuer.void(alice) == 0
        await desk.enter(await desk.issuer.issue(alice, ()))  # a new key


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_revoked_key_is_not_renewed(tmp_path: Path):
    async with register(tmp_path) as desk:
        uid = new_uid()
        issued = await desk.issuer.issue(uid, ())
        await desk.issuer.renew(issued.public, uid, ())
        with pytest.raises(Forbidden):
            await desk.issuer.renew(issued.public, new_uid(), ())

        await desk.issuer.void(uid)

        with pytest.raises(Forbidden):
            await desk.issuer.renew(issued.public, uid, ())


@pytest.mark.requirement("identity-revocation-everywhere")
@pytest.mark.slow
async def test_a_server_that_is_away_when_a_key_is_revoked_hears_of_it_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with register(tmp_path) as desk:
        issued = await desk.issuer.issue(new_uid(), ())
        await desk.rig.stop(kill=True)

        with pytest.raises(ServerFailed):
            await desk.issuer.void()
        work = supervised(desk.accounts.run, tell=desk.alert, kind=BEHIND)
        monkeypatch.setattr(supervision, "PATIENCE", 0.0)
        async with work, asyncio.timeout(SECONDS):
            await desk.alerted.wait()
            await desk.rig.start()  # with the accounts of before
            while len(desk.alerts) < 3:  # noqa: ASYNC110 (another task of ours works on it)
                await asyncio.sleep(0.01)

        with pytest.raises((Unauthorized, BusDisconnected)):
            await desk.enter(issued)
        # The first ends what an earlier process may have left.
        assert desk.alerts[1:] == ["accounts-behind", "accounts-behind is over"]


async def test_what_is_not_valid_any_more_is_forgotten(tmp_path: Path):
    async with register(tmp_path) as desk:
        uid = new_uid()
        issued = await desk.issuer.issue(uid, ())

        assert list(
            await desk.database.write(lambda store: store.credentials.keys_out(uid, now=0))
        ) == [issued.public]
        assert (
            await desk.database.write(lambda store: store.credentials.keys_out(uid, now=2e10)) == {}
        )
        assert await desk.database.write(lambda store: store.credentials.keys_out(uid, now=0)) == {}
