"""A full disk: detected early, and healed once it has space again.

nats-server does not answer a publish that it could not write. A stream that once failed so takes no record any more
until the server starts again, even if space comes back; only the server's log says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from postroom.bus.embedded import EmbeddedServer
from postroom.bus.server_config import ServerConfig
from postroom.disk import check_space
from postroom.errors import StateUnwritable
from postroom.observe import get_logger
from postroom.observe.supervision import well

INTERVAL = 2.0
"""Seconds between two checks of the server's log."""

LEAST_UPTIME = 20.0
"""Seconds between two restarts, so that the supervisor never counts them as too many crashes."""

BROKEN = b"critical write error"

log = get_logger(__name__)


class DiskWatch:
    """Restarts the server after it has stopped writing and has space again.

    Args:
        server: the present one; its supervisor starts the next after `stop`.
        space: raises `StateUnwritable` while the disk is full.
    """

    def __init__(
        self,
        config: ServerConfig,
        server: Callable[[], EmbeddedServer],
        space: Callable[[Path], None] = check_space,
    ) -> None:
        self._config = config
        self._server = server
        self._space = space
        self._read = self._size()
        self._broken = False

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            stopped = await self.step()
            well()
            if stopped:
                await asyncio.sleep(LEAST_UPTIME)

    async def step(self) -> bool:
        """Check once; return whether it stopped the server."""
        if BROKEN in self._news() and not self._broken:
            self._broken = True
            log.error("nats-server cannot write: the disk is full, or broken")
        if not self._broken:
            return False
        try:
            self._space(self._config.folder)
        except StateUnwritable:
            return False
        log.warning("there is space again: nats-server is started again")
        await self._server().stop()
        self._read, self._broken = self._size(), False
        return True

    def _size(self) -> int:
        return self._config.log.stat().st_size if self._config.log.exists() else 0

    def _news(self) -> bytes:
        """The log since the last check; a rotated log is read from its begin."""
        size = self._size()
        if size < self._read:
            self._read = 0
        if size == self._read:
            return b""
        with self._config.log.open("rb") as file:
            file.seek(self._read)
            news = file.read(size - self._read)
        # A half-written line is read whole the next time.
        self._read += news.rfind(b"\n") + 1
        return news
