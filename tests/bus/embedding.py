"""Embedded servers for tests: a configuration in a folder of its own, a running server, a connection to it."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from postroom.bus import embedded
from postroom.bus.embedded import EmbeddedServer
from postroom.bus.server_config import ServerConfig
from postroom.identity.credential import Credential
from postroom.identity.trust import Trust

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
        user_jwt_cb=credential.jwt_callback,
        signature_cb=credential.signature_callback,
        allow_reconnect=False,
    )
    try:
        yield client
    finally:
        await client.close()


async def greeting(server: EmbeddedServer) -> dict[str, Any]:
    """The INFO that a client is shown."""
    return await embedded._info("127.0.0.1", server.port)


def ended(pid: int) -> bool:
    """Whether a process that was waited for is no more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False
