"""Where the servers are, whether one answers, and how long to wait before trying again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from nats.aio.client import Server

from postroom.errors import BusDisconnected

RECONNECT_CAP = 2.0
"""Seconds: longest pause between attempts to connect again, before jitter."""


def remaining(deadline: float | None) -> float | None:
    """Seconds of the loop's clock until `deadline`, never negative; None for no deadline."""
    if deadline is None:
        return None
    return max(0.0, deadline - asyncio.get_running_loop().time())


def next_server(pool: list[Server], _info: dict[str, Any]) -> tuple[Server, float]:
    """Which server to try next, and after how many seconds: nats-py's hook for connecting again."""
    server = min(pool, key=lambda candidate: candidate.reconnects)
    if not server.reconnects:
        return server, random.uniform(0, 0.05)  # noqa: S311 (spreads load, hides nothing)
    pause = min(RECONNECT_CAP, 0.05 * 2 ** min(server.reconnects, 10))
    return server, pause * random.uniform(0.5, 1.5)  # noqa: S311


def places(servers: Sequence[str]) -> str:
    """Hosts and ports without anything secret that an address may carry."""
    return ", ".join(f"{host}:{port}" for host, port in map(_address, servers))


def _address(server: str) -> tuple[str, int]:
    parts = urlsplit(server if "://" in server else f"nats://{server}")
    return parts.hostname or "127.0.0.1", parts.port or 4222


async def reachable(servers: Sequence[str], deadline: float) -> None:
    """Wait until one of `servers` takes connections: nats-py itself would wait longer after a refusal."""
    pause = 0.01
    while True:
        for server in servers:
            try:
                async with asyncio.timeout(min(2.0, remaining(deadline) or 0.001)):
                    _, writer = await asyncio.open_connection(*_address(server))
            except OSError:  # TimeoutError is one
                continue
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            return
        if remaining(deadline) == 0:
            raise BusDisconnected(f"no bus answers at {places(servers)}")
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
        pause = min(0.5, pause * 1.6)
