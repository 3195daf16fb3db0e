"""A revoked credential: cut on every server at once, and useless ever after."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nats.aio.client import Client

from postroom.errors import Forbidden, ServerFailed
from postroom.identity.account_publisher import push_accounts
from postroom.identity.jwt import Credential
from postroom.identity.trust import Trust
from tests.cluster import Cluster, Node, running_cluster
from tests.identity.stage import (
    ALICE,
    BOB,
    Stage,
    connect_or_clean_up,
    mint,
    staged,
    until_closed,
)
from tests.natspy import options_of

pytestmark = pytest.mark.anyio

REFUSED = "(?i)authorization|authentication"


async def ignore(_error: Exception) -> None:
    """What is refused is raised by `connect`, too."""


async def enter(node: Node, credential: Credential) -> tuple[Client, asyncio.Event]:
    """A connection to one server of a cluster, and an event for its end."""
    client, closed = Client(), asyncio.Event()

    async def on_closed() -> None:
        closed.set()

    await connect_or_clean_up(
        client,
        node.url,
        error_cb=ignore,
        closed_cb=on_closed,
        **options_of(credential),
    )
    return client, closed


@asynccontextmanager
async def cluster_of_three(folder: Path) -> AsyncGenerator[tuple[Cluster, Trust]]:
    trust = Trust.load_or_create(folder / "keys")
    async with running_cluster(folder / "cluster", trust) as cluster:
        async with cluster.system() as system:
            await push_accounts(system, trust)
        yield cluster, trust


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_revoked_agent_is_cut_on_each_of_three_servers_and_let_in_by_none(tmp_path: Path):
    async with cluster_of_three(tmp_path) as (cluster, trust):
        alice, bob = mint(trust, ALICE), mint(trust, BOB)
        entered = [await enter(node, alice) for node in cluster.nodes]
        others = [await enter(node, bob) for node in cluster.nodes]

        trust.revoke({alice.public: time.time() + 600}, now=time.time())
        async with cluster.system() as system:
            assert await push_accounts(system, trust, changed=[trust.edge_account])
        async with asyncio.timeout(2):
            await asyncio.gather(*(closed.wait() for _, closed in entered))

        for node in cluster.nodes:
            with pytest.raises(Exception, match=REFUSED):
                await enter(node, alice)
        assert all(client.is_connected for client, _ in others)
        for client, _ in others:
            await client.close()


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_server_that_is_away_is_named_and_the_others_are_told_at_once(tmp_path: Path):
    async with cluster_of_three(tmp_path) as (cluster, trust):
        alice = mint(trust, ALICE)
        absent = cluster.nodes[2]
        await absent.kill()
        trust.revoke({alice.public: time.time() + 600}, now=time.time())
        async with cluster.system() as system:
            with pytest.raises(ServerFailed, match=r"1 of 3 servers .*: n2"):
                await push_accounts(system, trust, changed=[trust.edge_account])
        for node in cluster.nodes[:2]:
            with pytest.raises(Exception, match=REFUSED):
                await enter(node, alice)

        await absent.start()
        await cluster.ready()
        async with cluster.system() as system:
            await push_accounts(system, trust, changed=[trust.edge_account])

        with pytest.raises(Exception, match=REFUSED):
            await enter(absent, alice)


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_every_credential_of_a_revoked_key_is_void_and_none_is_made_again(stage: Stage):
    """A renewal makes a second JWT of the same key; a thief may have kept the first."""
    first = mint(stage.trust, ALICE)
    again = stage.trust.renew(first.public, ALICE, [], lifetime=600.0, now=time.time())
    second = Credential(again, first.seed)
    peers = [await stage.connect(each, ALICE) for each in (first, second)]

    stage.trust.revoke({first.public: time.time() + 600}, now=time.time())
    await push_accounts(await stage.system(), stage.trust)

    for peer in peers:
        await until_closed(peer)
    for each in (first, second):
        with pytest.raises(Exception, match=REFUSED):
            await stage.connect(each, ALICE)
    with pytest.raises(Forbidden):
        stage.trust.renew(first.public, ALICE, [], lifetime=600.0, now=time.time() + 5)
    assert (await stage.agent(ALICE)).client.is_connected  # a new key of the same agent


@pytest.mark.requirement("identity-revocation-everywhere")
async def test_a_revocation_that_was_kept_but_not_pushed_holds_from_the_next_start(tmp_path: Path):
    """As if the control plane were killed between the two."""
    async with staged(tmp_path) as before:
        revoked = mint(before.trust, ALICE)
        before.trust.revoke({revoked.public: time.time() + 600}, now=time.time())

    async with staged(tmp_path) as after:
        with pytest.raises(Exception, match=REFUSED):
            await after.connect(revoked, ALICE)
