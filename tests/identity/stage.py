"""A real server with both accounts, its streams, and raw nats-py clients that hold one credential each."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

from postroom.bus.address import BusAddress
from postroom.bus.embedded import EmbeddedServer
from postroom.bus.server_config import ServerConfig
from postroom.identity.jwt import Credential
from postroom.identity.trust import Trust
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS, STREAMS, agent_consumer
from postroom_a2a.nats import WireConnection
from tests.natspy import options_of

ALICE, BOB, CAROL = "a" * 32, "b" * 32, "c" * 32
LOBBY, VAULT = "lobby", "vault"
PATIENCE = 10.0


@dataclass
class Peer:
    """A connection that records what the server refused."""

    client: Client
    credential: Credential
    refused: list[str] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def settle(self) -> None:
        """Return when the server has handled, and answered, everything sent so far."""
        await self.client._flush_pending(force_flush=True)  # else flush() puts its PING first
        await self.client.flush(timeout=int(PATIENCE))

    async def publish(
        self, subject: str, payload: bytes = b"x", reply: str = "", **headers: str
    ) -> None:
        named = {key.replace("_", "-"): value for key, value in headers.items()} or None
        await self.client.publish(subject, payload, reply, headers=named)
        await self.settle()

    async def subscribe(self, subject: str) -> asyncio.Queue[Msg]:
        heard: asyncio.Queue[Msg] = asyncio.Queue()
        await self.client.subscribe(subject, cb=heard.put)
        await self.settle()
        return heard


@dataclass
class Stage:
    trust: Trust
    server: EmbeddedServer
    _stack: AsyncExitStack

    async def connect(self, credential: Credential, uid: str) -> Peer:
        peer = Peer(Client(), credential)

        async def on_error(error: Exception) -> None:
            peer.refused.append(str(error))

        async def on_closed() -> None:
            peer.closed.set()

        await connect_or_clean_up(
            peer.client,
            self.server.url,
            **options_of(credential),
            inbox_prefix=f"_I.{uid}.js",
            connect_timeout=int(PATIENCE),
            error_cb=on_error,
            closed_cb=on_closed,
        )
        self._stack.push_async_callback(peer.client.close)
        return peer

    async def agent(self, uid: str, *projects: str) -> Peer:
        return await self.connect(mint(self.trust, uid, *projects), uid)

    async def core(self) -> Peer:
        return await self.connect(self.trust.core_credential(), "core")

    async def system(self) -> WireConnection:
        system = await self.connection(self.trust.system_credential())
        self._stack.push_async_callback(system.close)
        return system

    async def connection(self, credential: Credential) -> WireConnection:
        """A connection of our own client."""
        return await BusAddress((self.server.url,)).connect(credentials=credential.for_connection())


async def connect_or_clean_up(client: Client, url: str, **options: Any) -> None:
    """Connect; nats-py leaves its socket open when it is refused."""
    try:
        await client.connect(url, allow_reconnect=False, **options)
    except Exception:
        if client._transport is not None:
            client._transport.close()
            with contextlib.suppress(OSError):
                await client._transport.wait_closed()
        raise


def mint(trust: Trust, uid: str, *projects: str, lifetime: float = 600.0) -> Credential:
    return trust.mint_agent(uid, projects, lifetime=lifetime, now=time.time())


def config_of(trust: Trust, folder: Path, *, port: int = 0, memory: bool = False) -> ServerConfig:
    return ServerConfig(
        folder,
        "127.0.0.1",
        port,
        trust.operator_jwt,
        trust.system_account,
        trust.account_jwts(),
        memory=memory,
    )


@asynccontextmanager
async def staged(folder: Path, org: str = "default") -> AsyncGenerator[Stage]:
    trust = Trust.load_or_create(folder / "keys", org)
    async with AsyncExitStack() as stack:
        server = await EmbeddedServer.start(config_of(trust, folder / "nats"))
        stack.push_async_callback(server.stop)
        yield Stage(trust, server, stack)


async def make_streams(core: Peer) -> None:
    """All streams, and the consumers of two agents, in memory."""
    js = core.client.jetstream()
    for spec in STREAMS:
        await js.add_stream(
            StreamConfig(
                name=spec.name,
                subjects=list(spec.subjects),
                max_consumers=spec.max_consumers,
                storage=StorageType.MEMORY,
            )
        )
    for uid in (ALICE, BOB):
        for stream in AGENT_CONSUMER_STREAMS:
            wanted = agent_consumer(stream, uid, (LOBBY,))
            config = ConsumerConfig(
                durable_name=wanted.durable,
                ack_policy=AckPolicy.EXPLICIT,
                filter_subjects=list(wanted.filter_subjects),
                ack_wait=wanted.ack_wait,
            )
            await js.add_consumer(wanted.stream, config)


async def stored(core: Peer) -> dict[str, int]:
    """Subject -> number of records, over all streams."""
    js = core.client.jetstream()
    found: dict[str, int] = {}
    for spec in STREAMS:
        info = await js.stream_info(spec.name, subjects_filter=">")
        found |= info.state.subjects or {}
    return found


async def until_closed(peer: Peer) -> None:
    await asyncio.wait_for(peer.closed.wait(), PATIENCE)


async def heard(queue: asyncio.Queue[Msg]) -> Msg:
    return await asyncio.wait_for(queue.get(), PATIENCE)
