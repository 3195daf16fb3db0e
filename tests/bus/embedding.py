"""Embedded servers for tests: a configuration in a folder of its own, a running server, a connection to it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from postroom.bus.address import BusAddress
from postroom.bus.embedded import EmbeddedServer
from postroom.bus.server_config import ServerConfig
from postroom.identity.jwt import Credential
from postroom.identity.trust import Trust
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.info import fetch_info
from tests.natspy import options_of

PATIENCE = 15.0
"""Seconds that a wait may take before it fails the test."""


def make_config(trust: Trust, folder: Path) -> ServerConfig:
    return ServerConfig(
        folder / "nats",
        "127.0.0.1",
        0,
        trust.operator_jwt,
        trust.system_account,
        trust.account_jwts(),
    )


@asynccontextmanager
async def running(config: ServerConfig) -> AsyncGenerator[EmbeddedServer]:
    started = await EmbeddedServer.start(config)
    try:
        yield started
    finally:
        await started.stop()


@asynccontextmanager
async def connected(server: EmbeddedServer, credential: Credential) -> AsyncGenerator[Client]:
    client = Client()
    await client.connect(
        server.url,
        allow_reconnect=False,
        **options_of(credential),
    )
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def system_of(server: EmbeddedServer, trust: Trust) -> AsyncGenerator[WireConnection]:
    """A connection of the system account."""
    async with await BusAddress((server.url,)).connect(
        credentials=trust.system_credential().for_connection()
    ) as system:
        yield system


async def greeting(server: EmbeddedServer) -> dict[str, Any]:
    """The INFO that a client is shown."""
    return await fetch_info("127.0.0.1", server.port)


def ended(pid: int) -> bool:
    """Whether a process that was waited for is no more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
