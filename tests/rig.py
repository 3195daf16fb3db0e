"""A running bus for tests: a real nats-server of its own, the two accounts, all streams, connected identities.

async with running_bus(tmp_path) as rig:
    alice = await rig.agent()
    await rig.core.publish(...)
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from postroom.bus.embedded import EmbeddedServer
from postroom.bus.nats import NatsAdmin, NatsBus, ensure_all
from postroom.bus.server_config import ServerConfig
from postroom.identity.jwt import Credential
from postroom.identity.trust import Trust
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.intervals import DELIVERY_BEAT
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS, agent_consumer


def new_uid() -> str:
    """A uid that no other test has."""
    return secrets.token_hex(16)


@dataclass
class Rig:
    """What a test may use; everything is closed at the end.

    Attributes:
        server: the running nats-server; `restart` replaces it.
        trust: the keys it trusts.
        core: the control plane's connection to the account with JetStream.
        admin: streams and consumers.
        edge: the control plane's connection among the agents.
        errors: what the connections reported that no call waited for.
    """

    server: EmbeddedServer
    trust: Trust
    stack: AsyncExitStack
    memory: bool
    errors: list[Exception] = field(default_factory=list)
    core: NatsBus = field(init=False)
    admin: NatsAdmin = field(init=False)
    edge: NatsBus = field(init=False)

    @property
    def url(self) -> str:
        """Address of the server."""
        return self.server.url

    async def connect(
        self,
        credential: Credential,
        uid: str,
        *,
        projects: Sequence[str] = (),
        beat: float = DELIVERY_BEAT,
    ) -> NatsBus:
        """A connection with `credential`."""
        bus = await NatsBus.connect(
            self.url,
            uid=uid,
            jwt=lambda: credential.jwt,
            sign=credential.sign,
            projects=projects,
            on_error=self.errors.append,
            beat=beat,
        )
        self.stack.push_async_callback(bus.close)
        return bus

    def credential(self, uid: str, projects: Sequence[str] = ()) -> Credential:
        """A new credential of agent `uid`."""
        return self.trust.mint_agent(uid, projects, lifetime=3600, now=time.time())

    async def agent(
        self, uid: str = "", projects: Sequence[str] = (), *, beat: float = DELIVERY_BEAT
    ) -> NatsBus:
        """A connected agent with its four durable consumers."""
        uid = uid or new_uid()
        for stream in AGENT_CONSUMER_STREAMS:
            await self.admin.ensure_consumer(agent_consumer(stream, uid, tuple(projects)))
        return await self.connect(self.credential(uid, projects), uid, projects=projects, beat=beat)

    async def restart(self, *, kill: bool = False) -> None:
        """End the server, or kill it, and start it again on its port and folder."""
        await self.stop(kill=kill)
        await self.start()

    async def stop(self, *, kill: bool = False) -> None:
        """End the server, or kill it, and wait until it is gone."""
        if kill:
            self.server.kill()
            await self.server.wait()
        else:
            await self.server.stop()

    async def start(self) -> None:
        """Start the server again on its port and folder."""
        self.server = await EmbeddedServer.start(self.server.config)


@asynccontextmanager
async def running_server(folder: Path, *, memory: bool = True) -> AsyncGenerator[Rig]:
    """A server and its keys; nothing is connected and there are no streams."""
    trust = Trust.load_or_create(folder / "keys")
    config = ServerConfig(
        folder=folder / "nats",
        host="127.0.0.1",
        port=0,
        operator_jwt=trust.operator_jwt,
        system_account=trust.system_account,
        preload=trust.account_jwts(),
        proxies=(trust.proxy_key.public,),
        memory=memory,
    )
    server = await EmbeddedServer.start(config)
    async with AsyncExitStack() as stack:
        rig = Rig(server, trust, stack, memory)
        stack.push_async_callback(rig.stop)
        yield rig


@asynccontextmanager
async def running_bus(
    folder: Path, *, memory: bool = True, streams: bool = True
) -> AsyncGenerator[Rig]:
    """A server with every stream, and the control plane connected to both accounts.

    Args:
        folder: empty; of this test alone.
        memory: keep streams in memory, which is faster; a test that restarts the server needs them on disk.
        streams: create them all.
    """
    async with running_server(folder, memory=memory) as rig:
        rig.core = await rig.connect(rig.trust.core_credential(), CONTROL_PLANE)
        rig.edge = await rig.connect(rig.trust.edge_credential(), CONTROL_PLANE)
        rig.admin = NatsAdmin(rig.core, memory=memory)
        if streams:
            await ensure_all(rig.admin)
        yield rig


__all__ = ["Rig", "new_uid", "running_bus", "running_server"]
