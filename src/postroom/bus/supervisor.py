"""Keeping the embedded server up: after a crash it starts again on the same port, up to a number of crashes.

While its disk is full no start is tried and no end counts as a crash: the supervisor waits for space.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from postroom.bus.address import BusAddress
from postroom.bus.disk import INTERVAL, check_space
from postroom.bus.embedded import EmbeddedServer
from postroom.bus.host import BusHost
from postroom.bus.server_config import NO_SPACE, ServerConfig, last_lines
from postroom.errors import EnvironmentFault, ServerFailed, StateUnwritable
from postroom.observe import get_logger
from postroom_a2a.nats import WireConnection
from postroom_a2a.retry import RetryPolicy

MAX_CRASHES = 5
"""Crashes within `CRASH_WINDOW` that lead to a restart; the next one is an error."""

CRASH_WINDOW = 60.0
"""Seconds."""

FIRST_DELAY = 0.1
LONGEST_DELAY = 5.0

log = get_logger(__name__)

OnRestart = Callable[[EmbeddedServer], Awaitable[None]]


def _for_space(reason: EnvironmentFault) -> bool:
    """Whether a full disk ended it; by now there may be space."""
    return any(words in str(reason).lower() for words in NO_SPACE)


class Supervisor(BusHost):
    """One server that is started again when it crashes.

    Use: `await start()`, then `run()` as a task of a TaskGroup, which ends after `stop()`; cancelling `run` ends
    the server too.

    Args:
        config: a port of 0 is chosen once and kept over restarts.
        on_restart: awaited with the new server after each restart.
        space: raises `StateUnwritable` while the disk of a folder is full.
    """

    def __init__(
        self,
        config: ServerConfig,
        on_restart: OnRestart | None = None,
        space: Callable[[Path], None] = check_space,
    ) -> None:
        self._config = config
        self._on_restart = on_restart
        self._space = space
        self._server: EmbeddedServer | None = None
        self._stopping = asyncio.Event()
        self._crashes: deque[float] = deque(maxlen=MAX_CRASHES + 1)
        self.restarts = 0
        self._planned: asyncio.Future[None] | None = None

    @property
    def server(self) -> EmbeddedServer:
        """The present server; after a crash the ended one, until its successor is ready."""
        if self._server is None:
            raise ServerFailed("the server was not started")
        return self._server

    # The port `postroom.bus.host.BusHost`.

    @property
    def address(self) -> BusAddress:
        """The present server's."""
        tls = self._config.tls
        if tls is None:
            return BusAddress((self.server.url,))
        return BusAddress((self.server.url,), tls.client, tls_name=tls.name)

    @property
    def version(self) -> str:
        """The present server's."""
        return self.server.version

    @property
    def pid(self) -> int:
        """The present server's."""
        return self.server.pid

    @property
    def replicas(self) -> int:
        """One: a single server."""
        return 1

    @property
    def doubts(self) -> tuple[str, ...]:
        """None: Postroom has configured it."""
        return ()

    async def check(self, system: WireConnection) -> None:
        """Whether it flushes each record to disk before it acknowledges it (see `BusHost.check`)."""
        if not self._config.memory and not await self.server.effective_sync_always(system):
            raise ServerFailed("nats-server does not flush each record before it acknowledges it")

    async def start(self) -> EmbeddedServer:
        """Start the first server.

        Raises:
            EnvironmentFault: as `EmbeddedServer.start`; a first start is not tried again.
        """
        self._server = await EmbeddedServer.start(self._config)
        self._config = self._server.config  # with the chosen port
        return self._server

    async def trust_proxies(self, proxies: Sequence[str]) -> bool:
        # Nothing else may differ: the server refuses another JWT of the same operator.
        await self.server.reconfigure(replace(self._config, proxies=tuple(proxies)))
        self._config = self.server.config
        return True

    async def trust_operator(
        self, operator_jwt: str, signers: Sequence[str], accounts: Mapping[str, str]
    ) -> bool:
        """As `BusHost.trust_operator`; the JWT names `signers`."""
        del signers
        self._config = replace(self._config, operator_jwt=operator_jwt, preload=accounts)
        self._planned = planned = asyncio.get_running_loop().create_future()
        await self.server.stop()
        await planned
        return True

    def reload(self) -> None:
        """Have the server read its files again (see `EmbeddedServer.reload`)."""
        self.server.reload()

    async def run(self) -> None:
        """Supervise until `stop`.

        Raises:
            ServerFailed: it crashed too often; with the last lines of its log.
            EnvironmentFault: it could not start again that often (port taken, folder not writable).
        """
        try:
            while not self._stopping.is_set():
                status = await self.server.wait()
                planned = self._planned
                if planned is None:
                    await self._bring_back(self._crashed(status))
                elif not self._stopping.is_set():
                    await self._restarted()
                    planned.set_result(None)
                    self._planned = None
        finally:
            await self.server.stop()
            if self._planned is not None and not self._planned.done():
                self._planned.set_exception(ServerFailed("the server was not started again"))

    async def stop(self) -> None:
        """End the server and `run`."""
        self._stopping.set()
        if self._server is not None:
            await self._server.stop()

    async def _restarted(self) -> None:
        """Restart it on purpose; a failed start is handled like a crash."""
        try:
            self._server = await EmbeddedServer.start(self._config)
        except EnvironmentFault as error:
            await self._bring_back(error)
            return
        if self._on_restart is not None:
            await self._on_restart(self._server)

    def _crashed(self, status: int) -> EnvironmentFault:
        said = last_lines(self._config, self.server.pid)
        return ServerFailed(f"nats-server keeps ending, lately with status {status}: {said}")

    async def _bring_back(self, reason: EnvironmentFault) -> None:
        """Start it again; a failed start counts as one more crash, with its own reason."""
        while not await self._stopped_before_start(reason):
            try:
                self._server = await EmbeddedServer.start(self._config)
            except EnvironmentFault as error:
                reason = error
                continue
            self.restarts += 1
            if self._on_restart is not None and not self._stopping.is_set():
                await self._on_restart(self._server)
            return

    async def _stopped_before_start(self, reason: EnvironmentFault) -> bool:
        """Wait until it may start again; return True if it must stop instead."""
        if not self._full() and not _for_space(reason):
            return await self._stopped_within(self._bear(reason))
        log.error("nats-server is down and its disk is full: it is started when there is space")
        while not await self._stopped_within(INTERVAL):
            if not self._full():
                log.warning("there is space again: nats-server is started")
                return False
        return True

    def _full(self) -> bool:
        if self._config.memory:
            return False
        try:
            self._space(self._config.folder)
        except StateUnwritable:
            return True
        return False

    def _bear(self, reason: EnvironmentFault) -> float:
        """The seconds to wait before the next start; raises `reason` after one crash too many."""
        now = time.monotonic()
        self._crashes.append(now)
        recent = sum(1 for at in self._crashes if now - at <= CRASH_WINDOW)
        if recent > MAX_CRASHES and not self._stopping.is_set():
            raise reason
        return RetryPolicy(base=FIRST_DELAY, cap=LONGEST_DELAY).delay(recent)

    async def _stopped_within(self, delay: float) -> bool:
        try:
            async with asyncio.timeout(delay):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True
