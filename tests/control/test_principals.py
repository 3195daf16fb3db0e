"""Who is let in at the API, route by route."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from postroom.control.ops.table import ANYONE, Demand, Operation
from postroom.control.org_router import WORKER
from postroom.control.principals import Gate
from postroom.directory.agents import Directory
from postroom.directory.iam import LocalIAM
from postroom.errors import Forbidden, Unauthorized
from postroom.identity.tokens import OperatorKey, digest, new_token
from postroom.protocol.principal import ALL_SCOPES, DOOR, KEY, Scope
from postroom.store.agents import Agent
from postroom.store.database import Database, Store
from postroom.store.migrate import migrate
from postroom.store.workers import STOPPED, WorkerRecord

pytestmark = pytest.mark.anyio


async def _nothing() -> None: ...


def _for(demand: Demand) -> Operation:
    return Operation(_nothing, "GET", "/v1/nothing", "nothing", demand)


_ADMINISTER = _for(Demand(Scope.ADMIN))
_READ = _for(Demand(Scope.READ, door=True))
_OPEN = _for(ANYONE)


@pytest.fixture
async def gate() -> AsyncGenerator[Gate]:
    async with Database() as database:
        await migrate(database)
        owner = await Directory(database).register("ann", "human")
        directory = Directory(database)
        iam = LocalIAM(database, directory, OperatorKey(Path(), "the key"), owner)
        yield Gate(iam, database)


def _asked(*authorization: bytes, worker: str = "") -> dict[str, Any]:
    headers = [(b"authorization", value) for value in authorization]
    return {"headers": headers} | ({WORKER: worker} if worker else {})


async def test_the_operators_key_makes_its_bearer_the_owner(gate: Gate) -> None:
    for word in (b"Bearer", b"bearer", b"BEARER"):
        me = await gate.admit(_asked(word + b" the key"), _ADMINISTER)

        assert me is not None
        assert (me.nick, me.scopes, me.method) == ("ann", ALL_SCOPES, KEY)


@pytest.mark.parametrize(
    "given",
    [
        (),
        (b"",),
        (b"Bearer",),
        (b"Bearer ",),
        (b"Bearer  the key",),
        (b"Bearer the key ",),
        (b"Basic the key",),
        (b"the key",),
        (b"Bearer the key\0",),
        (b"Bearer \xff\xfe",),
        (b"Bearer the key", b"Bearer the key"),
        (b"Bearer the key", b"Bearer another"),
    ],
)
async def test_no_other_header_is_taken(gate: Gate, given: tuple[bytes, ...]) -> None:
    with pytest.raises(Unauthorized):
        await gate.admit(_asked(*given), _READ)


async def test_a_key_is_worth_nothing_at_a_workers_door(gate: Gate) -> None:
    with pytest.raises(Forbidden, match="workers may not"):
        await gate.admit(_asked(b"Bearer the key", worker="a" * 32), _ADMINISTER)
    with pytest.raises(Unauthorized, match="this worker's"):
        await gate.admit(_asked(b"Bearer the key", worker="a" * 32), _READ)


async def test_a_workers_token_is_worth_nothing_at_the_peoples_door(gate: Gate) -> None:
    token = new_token()

    def add(store: Store, agent: Agent) -> None:
        store.workers.add_worker(
            WorkerRecord(agent.uid, "main", "", "none", "", STOPPED, digest(token), 1.0)
        )

    alice = await Directory(gate.database).register("alice", "worker", also=add)
    own = await gate.admit(_asked(f"Bearer {token}".encode(), worker=alice.uid), _READ)
    assert own is not None
    assert (own.uid, own.kind, own.method, own.key_id) == (alice.uid, "worker", DOOR, "")

    with pytest.raises(Unauthorized, match="not valid"):
        await gate.admit(_asked(f"Bearer {token}".encode()), _READ)
    with pytest.raises(Unauthorized):
        await gate.admit(_asked(f"Bearer {token}".encode(), worker="a" * 32), _READ)


async def test_an_open_route_asks_for_nothing(gate: Gate) -> None:
    assert await gate.admit(_asked(), _OPEN) is None
