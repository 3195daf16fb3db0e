"""A whole post room on three nats-servers that somebody else runs, some of which die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from postroom.client.http import Client
from postroom.errors import PostroomError
from postroom.identity.trust import Trust
from postroom.protocol.streams import STREAMS
from tests.bus.test_cluster_faults import Routes
from tests.cluster import Change, Cluster, Node, running_cluster, survey
from tests.e2e.conftest import EXAMPLES, PostRoom, until

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(180),
]  # an election alone may take nine seconds

ECHO = str(EXAMPLES / "echo.toml")
BUCKETS = 2
MESSAGES = 40

T = TypeVar("T")


async def aside(function: Callable[..., T], *arguments: Any, **more: Any) -> T:
    """Call what waits for other processes, while this one goes on reading what the servers say."""
    return await asyncio.to_thread(function, *arguments, **more)


@asynccontextmanager
async def on_a_cluster(
    room: PostRoom, folder: Path, change: Change = lambda _: None
) -> AsyncGenerator[Cluster]:
    """Three servers that trust the post room, which is told of them and is down."""
    trust = Trust.load_or_create(room.state / "keys")
    async with running_cluster(folder / "cluster", trust, change=change) as cluster:
        room.env["POSTROOM_NATS_URL"] = ",".join(cluster.urls)
        try:
            yield cluster
        finally:
            if (room.state / "server.json").exists():
                await aside(room.run, "down")


async def streams(cluster: Cluster) -> dict[str, dict[str, Any]]:
    """State of each stream by its name, as its leader tells it."""
    found = {}
    request = b'{"accounts": true, "streams": true, "config": true}'
    async with cluster.system() as system:
        for answer in await survey(system, "JSZ", len(cluster.nodes), request):
            for account in answer["data"].get("account_details") or ():
                for stream in account.get("stream_detail") or ():
                    if stream["cluster"].get("leader") == answer["server"]["name"]:
                        found[stream["name"]] = stream
    return found


async def leader(cluster: Cluster, stream: str) -> Node:
    return cluster.node((await streams(cluster))[stream]["cluster"]["leader"])


async def follower(cluster: Cluster) -> Node:
    """A server that does not lead JetStream."""
    leading = await cluster.ready()
    return next(node for node in cluster.nodes if node.name != leading)


@pytest.mark.requirement("nats-node-death-keeps-accepted")
async def test_a_post_room_runs_on_three_servers_of_somebody_else(
    room: PostRoom, tmp_path: Path
) -> None:
    async with on_a_cluster(room, tmp_path) as cluster:
        await aside(room.up)

        assert room.server["nats_pid"] == 0
        assert room.server["nats_url"] == ",".join(cluster.urls)
        assert not (room.state / "nats").exists()
        await aside(room.run, "spawn", ECHO)
        answer = await aside(room.run, "send", "@echo", "hello there", "--wait", "answered")
        assert "hello there" in answer
        await aside(room.run, "delegate", "@echo", "say it", "--wait")
        made = await streams(cluster)
        assert len(made) == len(STREAMS) + BUCKETS
        assert {stream["config"]["num_replicas"] for stream in made.values()} == {3}

        await aside(room.run, "down")

        assert all(node.running for node in cluster.nodes)
        assert await cluster.ready()
        await aside(room.run, "admin", "rebuild")


@pytest.mark.slow
@pytest.mark.requirement("nats-node-death-keeps-accepted")
async def test_a_post_room_starts_while_one_of_three_servers_is_away(
    room: PostRoom, tmp_path: Path
) -> None:
    async with on_a_cluster(room, tmp_path) as cluster:
        await aside(room.up)
        await aside(room.run, "down")
        away = await follower(cluster)
        await away.kill()
        await aside(room.up)

        assert f"1 of 3 servers did not take the accounts: {away.name}" in room.control_log

        await aside(room.run, "down")
        await away.start()
        assert await cluster.ready()
        await aside(room.run, "admin", "rebuild")


@pytest.mark.slow
@pytest.mark.requirement("nats-node-death-keeps-accepted")
async def test_of_what_was_accepted_nothing_is_lost_when_the_leader_of_a_stream_is_killed(
    room: PostRoom, tmp_path: Path
) -> None:
    async with on_a_cluster(room, tmp_path) as cluster:
        await aside(room.up)
        await aside(room.run, "spawn", ECHO)
        await aside(room.run, "send", "@echo", "before", "--wait", "answered")
        leading = await leader(cluster, "INBOX")
        half = asyncio.Event()
        loop = asyncio.get_running_loop()

        def send(client: Client) -> list[str]:
            accepted = []
            for number in range(MESSAGES):
                if number == MESSAGES // 2:
                    loop.call_soon_threadsafe(half.set)
                accepted.append(until(lambda n=number: _sent(client, f"n{n}")))
            return accepted

        with room.client() as client:
            sending = asyncio.create_task(aside(send, client))
            await half.wait()
            await leading.kill()
            accepted = await sending
            states = [
                (await aside(client.wait, mail, "answered", 40.0))["state"] for mail in accepted
            ]

        assert states == ["answered"] * MESSAGES


def _sent(client: Client, text: str) -> str:
    """Id of the message, "" if it was not accepted."""
    try:
        return client.send("@echo", text)["id"]
    except PostroomError:
        return ""


@pytest.mark.slow
@pytest.mark.requirement("nats-node-death-keeps-accepted")
async def test_a_post_room_lives_on_when_all_servers_were_killed_and_came_back(
    room: PostRoom, tmp_path: Path
) -> None:
    async with on_a_cluster(room, tmp_path) as cluster:
        await aside(room.up)
        await aside(room.run, "spawn", ECHO)
        await aside(room.run, "send", "@echo", "before", "--wait", "answered")
        pid = room.server["pid"]
        for node in cluster.nodes:
            await node.kill()
        status = await aside(room.json, "status")
        assert status["server"]["pid"] == pid
        assert status["bus"] == "the bus does not answer"
        assert "bus: the bus does not answer" in (await aside(room.run, "status")).splitlines()
        await asyncio.gather(*(node.start() for node in cluster.nodes))
        await cluster.ready()

        with room.client() as client:
            again = await aside(until, lambda: _sent(client, "after"))
            assert (await aside(client.wait, again, "answered", 40.0))["state"] == "answered"
        assert room.server["pid"] == pid


@pytest.mark.slow
@pytest.mark.requirement("nats-node-death-keeps-accepted")
@pytest.mark.parametrize("hangs", [True, False], ids=["hangs", "ends"])
async def test_a_post_room_leaves_the_one_of_three_servers_that_is_cut_off(
    room: PostRoom, tmp_path: Path, hangs: bool
) -> None:
    routes = Routes()
    async with AsyncExitStack() as stack:
        await routes.open(stack)
        cluster = await stack.enter_async_context(on_a_cluster(room, tmp_path, routes.lead))
        near = await follower(cluster)
        others = [url for url in cluster.urls if url != near.url]
        room.env["POSTROOM_NATS_URL"] = ",".join([near.url, *others])
        await aside(room.up)
        await aside(room.run, "spawn", ECHO)
        await aside(room.run, "send", "@echo", "before", "--wait", "answered")

        await routes.cut_off(near.name, hangs=hangs)

        with room.client() as client:
            await aside(until, lambda: _sent(client, "after"))
        await aside(room.run, "send", "@echo", "and answered", "--wait", "answered")
