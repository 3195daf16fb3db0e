"""JetStream of three real servers whose peers stand still, or cannot be reached, through our connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.bus.address import BusAddress
from postroom.errors import PostroomError, RequestTimeout
from postroom.identity.trust import Trust
from postroom_a2a.nats.jetstream import MSG_ID, JetStream, Stored
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import Frame
from tests.cluster import Cluster, Node, running_cluster

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

STREAM = {"name": "LOG", "subjects": ["log.*"], "num_replicas": 3, "storage": "file"}
SENDERS = 4


class CountingMailbox(Mailbox):
    """Keeps the answers of the server as they are."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked = 0
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()

    async def ask(self, *arguments: Any, **more: Any) -> Frame:
        self.asked += 1
        frame = await super().ask(*arguments, **more)
        self.heard.put_nowait(frame.data)
        return frame


@asynccontextmanager
async def three_servers(folder: Path) -> AsyncGenerator[tuple[Cluster, Trust]]:
    """A cluster that knows the accounts of `Trust` from its start."""
    trust = Trust.load_or_create(folder / "keys")

    def know(config: dict[str, Any]) -> None:
        config["resolver_preload"] = trust.account_jwts()

    async with running_cluster(folder / "cluster", trust, change=know) as cluster:
        yield cluster, trust


@asynccontextmanager
async def log_on(
    servers: tuple[str, ...], trust: Trust
) -> AsyncGenerator[tuple[JetStream, CountingMailbox]]:
    """JetStream of the account that has the log, with a stream on all three servers."""
    credential = trust.core_credential().for_connection()
    async with await BusAddress(servers).connect(credentials=credential, wait=20.0) as connection:
        mailbox = CountingMailbox(connection)
        yield JetStream(mailbox), mailbox


async def leader_of(js: JetStream, cluster: Cluster) -> Node:
    info = await js.api(f"STREAM.INFO.{STREAM['name']}")
    return cluster.node(info["cluster"]["leader"])


async def publish(js: JetStream, number: int, timeout: float) -> Stored | PostroomError:
    try:
        return await js.publish(
            "log.one", b"%d" % number, headers={MSG_ID: f"m{number}"}, timeout=timeout
        )
    except PostroomError as error:
        return error


@pytest.mark.requirement("bus-uncertain-named")
async def test_a_message_that_is_on_its_way_to_the_followers_is_asked_for_until_it_is_stored(
    tmp_path: Path,
) -> None:
    async with three_servers(tmp_path) as (cluster, trust), log_on(cluster.urls, trust) as (js, _):
        await js.open_stream(STREAM)
        leading = await leader_of(js, cluster)
        async with log_on((leading.url,), trust) as (near, mailbox):
            await near.api("STREAM.INFO.LOG")
            while not mailbox.heard.empty():
                mailbox.heard.get_nowait()
            followers = [node for node in cluster.nodes if node is not leading]
            for node in followers:
                node.freeze()
            try:
                sends = [asyncio.create_task(publish(near, n, 30.0)) for n in range(SENDERS)]
                async with asyncio.timeout(30):
                    while b"10158" not in await mailbox.heard.get():
                        pass
            finally:
                for node in followers:
                    node.thaw()
            answers = await asyncio.gather(*sends)

        assert all(isinstance(each, Stored) for each in answers), answers
        assert len({each.sequence for each in answers if isinstance(each, Stored)}) == SENDERS


@pytest.mark.requirement("bus-uncertain-named")
async def test_what_is_on_its_way_when_time_is_over_is_perhaps_stored(tmp_path: Path) -> None:
    async with three_servers(tmp_path) as (cluster, trust), log_on(cluster.urls, trust) as (js, _):
        await js.open_stream(STREAM)
        leading = await leader_of(js, cluster)
        async with log_on((leading.url,), trust) as (near, mailbox):
            await near.api("STREAM.INFO.LOG")
            followers = [node for node in cluster.nodes if node is not leading]
            for node in followers:
                node.freeze()
            try:
                # Longer than one attempt waits, so that the server is asked for a copy.
                answer = await publish(near, 1, 4.0)
            finally:
                for node in followers:
                    node.thaw()
            again = await publish(near, 1, 30.0)

        assert isinstance(answer, RequestTimeout), answer
        assert isinstance(again, Stored)
        assert again.duplicate
        assert mailbox.asked > 2
