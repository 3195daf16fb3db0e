"""JetStream of three real servers whose peers stand still, or cannot be reached, through our connection."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Unpack

import pytest

from library.nats.wireserver import Proxy
from postroom.bus.address import BusAddress
from postroom.errors import PostroomError, RequestTimeout
from postroom.identity.trust import Trust
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.jetstream import MSG_ID, JetStream, Stored
from postroom_a2a.nats.mailbox import FrameQueue, Mailbox
from postroom_a2a.nats.options import ConnectOptions, ServerAddress
from postroom_a2a.nats.port import Frame
from postroom_a2a.nats.pull import PullLoop
from tests.cluster import HOST, READY_TIMEOUT, Change, Cluster, Node, running_cluster

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

STREAM = {"name": "LOG", "subjects": ["log.*"], "num_replicas": 3, "storage": "file"}
SENDERS = 4
NAMES = ("n0", "n1", "n2")
TRIES = 12
"""Messages of which one must be accepted: an election alone may take as long as three of them wait."""


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


class Routes:
    """The ways from each of three servers to each other, which are proxies."""

    def __init__(self) -> None:
        self._between = {ends: Proxy("") for ends in itertools.permutations(NAMES, 2)}
        self._urls: dict[tuple[str, str], str] = {}

    async def open(self, stack: AsyncExitStack) -> None:
        for ends, proxy in self._between.items():
            self._urls[ends] = await stack.enter_async_context(proxy)

    def lead(self, config: dict[str, Any]) -> None:
        """Have a server reach the others over the proxies alone."""
        own, cluster = config["server_name"], config["cluster"]
        others = [name for name in NAMES if name != own]
        for other, url in zip(others, cluster["routes"], strict=True):
            self._between[own, other].lead_to(url.removeprefix("nats://"))
        cluster["routes"] = [self._urls[own, other] for other in others]
        cluster["advertise"] = f"{HOST}:1"  # else they tell each other the way past the proxies

    async def cut_off(self, name: str, *, hangs: bool) -> None:
        """Cut a server off from the others, whose connections to it hang, or end."""
        for ends, proxy in self._between.items():
            if name in ends and hangs:
                proxy.shut()
            elif name in ends:
                await proxy.__aexit__()


@asynccontextmanager
async def three_servers(
    folder: Path, change: Change = lambda _: None
) -> AsyncGenerator[tuple[Cluster, Trust]]:
    """A cluster that knows the accounts of `Trust` from its start."""
    trust = Trust.load_or_create(folder / "keys")

    def know(config: dict[str, Any]) -> None:
        config["resolver_preload"] = trust.account_jwts()
        change(config)

    async with running_cluster(folder / "cluster", trust, change=know) as cluster:
        yield cluster, trust


@asynccontextmanager
async def log_on(
    servers: tuple[str, ...], trust: Trust, **options: Unpack[ConnectOptions]
) -> AsyncGenerator[tuple[JetStream, CountingMailbox]]:
    """JetStream of the account that has the log, with a stream on all three servers."""
    credential = trust.core_credential().for_connection()
    options = {"credentials": credential, "wait": 20.0} | options
    async with await BusAddress(servers).connect(**options) as connection:
        mailbox = CountingMailbox(connection)
        yield JetStream(mailbox), mailbox


async def placed(js: JetStream, cluster: Cluster) -> None:
    """Make the stream, as soon as the leader can place it.

    It places nothing on a server of which it has not heard how full it is, which each says from time to time.
    """
    heard = FrameQueue()
    async with cluster.system() as system, asyncio.timeout(READY_TIMEOUT):
        await system.subscribe_now("$SYS.SERVER.*.STATSZ", heard.put)
        while True:
            try:
                await js.open_stream(STREAM)
                return
            except PostroomError as error:
                if "no suitable peers" not in str(error):
                    raise
            await heard.get(READY_TIMEOUT)


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


@pytest.mark.requirement("bus-ack-means-disk")
async def test_a_message_that_is_on_its_way_to_the_followers_is_asked_for_until_it_is_stored(
    tmp_path: Path,
) -> None:
    async with three_servers(tmp_path) as (cluster, trust), log_on(cluster.urls, trust) as (js, _):
        await placed(js, cluster)
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


@pytest.mark.requirement("bus-ack-means-disk")
async def test_what_is_on_its_way_when_time_is_over_is_perhaps_stored(tmp_path: Path) -> None:
    async with three_servers(tmp_path) as (cluster, trust), log_on(cluster.urls, trust) as (js, _):
        await placed(js, cluster)
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


@asynccontextmanager
async def cut_off(
    folder: Path, *, hangs: bool, leads: bool = False
) -> AsyncGenerator[tuple[tuple[str, ...], Trust, Callable[[], Awaitable[None]]]]:
    """Addresses of three servers, the first of which is the one that the function given cuts off from the others.

    Args:
        leads: whether that one leads the stream.
    """
    routes = Routes()
    async with AsyncExitStack() as stack:
        await routes.open(stack)
        cluster, trust = await stack.enter_async_context(three_servers(folder, routes.lead))
        js, _ = await stack.enter_async_context(log_on(cluster.urls, trust))
        await placed(js, cluster)
        leading = await leader_of(js, cluster)
        one = next(node for node in cluster.nodes if (node is leading) == leads)
        urls = sorted(cluster.urls, key=lambda url: url != one.url)

        async def cut() -> None:
            await routes.cut_off(one.name, hangs=hangs)

        yield tuple(urls), trust, cut


async def accepted(js: JetStream) -> Stored | PostroomError:
    """The first of some messages that is accepted, or why the last one is not."""
    for number in range(1, TRIES):
        answer = await publish(js, number, 5.0)
        if isinstance(answer, Stored):
            break
        await asyncio.sleep(0.2)  # a message that nobody hears is answered at once
    return answer


@pytest.mark.requirement("nats-node-death-keeps-accepted")
@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
@pytest.mark.parametrize("hangs", [True, False], ids=["hangs", "ends"])
async def test_a_server_that_is_cut_off_from_the_others_is_left_for_one_of_them(
    tmp_path: Path, hangs: bool, leads: bool
) -> None:
    async with (
        cut_off(tmp_path, hangs=hangs, leads=leads) as (urls, trust, cut),
        log_on(urls, trust, patience=0.5) as (js, _),
        log_on(urls[:1], trust, patience=0.5) as (bound, _),
    ):
        assert isinstance(await publish(js, 0, 20.0), Stored)

        await cut()

        assert isinstance(await accepted(js), Stored)
        assert not isinstance(await publish(bound, 100, 4.0), Stored)
        stayed = bound.mailbox.connection
        assert isinstance(stayed, WireConnection)
        assert stayed.reconnects == 0


@pytest.mark.requirement("nats-node-death-keeps-accepted")
@pytest.mark.parametrize("hangs", [True, False], ids=["hangs", "ends"])
async def test_who_only_reads_leaves_a_server_that_is_cut_off_too(
    tmp_path: Path, hangs: bool
) -> None:
    taken: asyncio.Queue[bytes] = asyncio.Queue()

    def take(frame: Frame, _: object) -> bool:
        taken.put_nowait(frame.data)
        return True

    async with (
        cut_off(tmp_path, hangs=hangs) as (urls, trust, cut),
        log_on(urls, trust, patience=0.5) as (js, _),
        log_on(urls[1:], trust) as (well, _),
    ):
        # What was given to the server when it was cut off already comes again.
        durable = {"ack_policy": "explicit", "ack_wait": 2 * 10**9, "num_replicas": 3}
        await js.ensure_consumer("LOG", "reader", durable)
        loop = PullLoop(js, "LOG", "reader", take, lambda: 8, expires=5.0, heartbeat=0.5)
        pulling = asyncio.create_task(loop.run())
        try:
            await publish(well, 0, 20.0)
            async with asyncio.timeout(20):
                assert await taken.get() == b"0"

            await cut()

            assert isinstance(await accepted(well), Stored)
            async with asyncio.timeout(60):
                while await taken.get() == b"0":  # it comes again, unacknowledged
                    pass
        finally:
            loop.stop()
            await pulling


@pytest.mark.requirement("nats-node-death-keeps-accepted")
async def test_who_begins_to_read_leaves_a_server_that_hears_of_no_leader(tmp_path: Path) -> None:
    """Of a stream such a server tells in the end what it knows, but it makes no consumer."""
    async with (
        cut_off(tmp_path, hangs=False) as (urls, trust, cut),
        log_on(urls, trust, patience=0.5) as (js, _),
    ):
        config = {"ack_policy": "none", "mem_storage": True, "inactive_threshold": 30 * 10**9}
        await cut()
        answers: list[object] = []
        for number in range(TRIES):
            try:
                answers.append(await js.create_consumer("LOG", f"c{number}", config))
                break
            except PostroomError as error:
                answers.append(error)

        assert isinstance(answers[-1], dict), answers


@pytest.mark.requirement("nats-node-death-keeps-accepted")
async def test_who_reaches_a_cluster_through_one_door_leaves_too(tmp_path: Path) -> None:
    """As a sidecar does: the gateway dials the servers, and says in its greeting that there are others."""
    loop = asyncio.get_running_loop()
    async with cut_off(tmp_path, hangs=False) as (urls, trust, cut):
        doors = itertools.chain(urls[:1], itertools.cycle(urls[1:]))

        def dial(factory: Callable[[], asyncio.Protocol], _: ServerAddress) -> Any:
            return loop.create_connection(factory, HOST, int(next(doors).rpartition(":")[2]))

        async with log_on(("nats://door",), trust, patience=0.5, dial=dial) as (js, _):
            assert isinstance(await publish(js, 0, 20.0), Stored)

            await cut()

            assert isinstance(await accepted(js), Stored)
