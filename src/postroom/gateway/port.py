"""What the gateway promises: the `GatewayProvider` port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Dialer = Callable[[str], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Opens the upstream of one protocol for the worker with the given uid."""


@dataclass(frozen=True, slots=True)
class GatewayStatistics:
    """Counters since the gateway was opened."""

    doors: int = 0
    open_connections: int = 0
    accepted: int = 0
    refused: int = 0


class GatewayProvider(Protocol):
    """One door per worker; what goes through is in the audit log, tied to the worker.

    A connection counts only if its first line names a known protocol and shows the token of the worker whose
    door it came through; a token is worth nothing at another door.
    """

    async def open_door(self, uid: str, token_sha256: str) -> Path:
        """Open the door of worker `uid`; returns the socket that its sandbox gets.

        Raises:
            EnvironmentFault: the socket cannot be made.
        """

    async def close_door(self, uid: str) -> None:
        """Close the door and every connection that came through it. Idempotent."""

    async def close(self) -> None:
        """Close every door."""

    def statistics(self) -> GatewayStatistics:
        """Counters since the gateway was opened."""
