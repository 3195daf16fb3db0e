"""One container with the sidecar in it: polled, kept alive, and removed at the end."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from postroom.errors import SandboxUnavailable
from postroom.observe import get_logger
from postroom.protocol.execd import SIGNALLED, exit_status
from postroom.sandbox.opensandbox.remote import A2A_PORT, Remote
from postroom.sandbox.opensandbox.server import bury, is_gone, told
from postroom.sandbox.output import OutputLog
from postroom.sandbox.port import ExitStatus, Inward, Level

if TYPE_CHECKING:
    from opensandbox import Sandbox
    from opensandbox.models.execd import CommandStatus

log = get_logger(__name__)

KILLED = ExitStatus(SIGNALLED + 9)
HURRY = 0.1
"""Seconds between two polls of a program that is to end."""


class OpenSandboxHandle:
    """See `SandboxHandle`. The program is a command of execd; its end removes the container.

    Args:
        output: takes the program's output; closed at the end.
    """

    pid = 0

    def __init__(
        self, sandbox: Sandbox, command: str, output: OutputLog, level: Level, remote: Remote
    ) -> None:
        self.level = level
        self._sandbox = sandbox
        self._command = command
        self._output = output
        self._remote = remote
        self._cursor = 0
        self._log_error = ""
        self._renewed = time.monotonic()
        self._hurry = asyncio.Event()
        self._killed = asyncio.Event()
        self._end = asyncio.create_task(self._run_to_end(), name=f"sandbox {sandbox.id}")

    async def inward(self) -> Inward:
        """The way through execd, which passes requests on to a loopback port of the container."""
        from opensandbox.constants import DEFAULT_EXECD_PORT

        with told("looking for a sandbox's daemon"):
            async with asyncio.timeout(self._remote.request):
                endpoint = await self._sandbox.get_endpoint(DEFAULT_EXECD_PORT)
        config = self._sandbox.connection_config
        url = f"{config.protocol}://{endpoint.endpoint.rstrip('/')}/proxy/{A2A_PORT}"
        return Inward(url, endpoint.build_request_headers(config))

    async def wait(self) -> ExitStatus:
        """Wait for the end of the program, or of the container."""
        return await asyncio.shield(self._end)

    async def stop(self, grace: float) -> ExitStatus:
        """SIGTERM to the program, after `grace` seconds the container is removed."""
        if not self._end.done():
            with suppress(TimeoutError, SandboxUnavailable):
                async with asyncio.timeout(grace):
                    with told("stopping a sandbox"):
                        await self._sandbox.commands.interrupt(self._command)
                    self._hurry.set()
                    return await self.wait()
            self.kill()
        return await self.wait()

    def kill(self) -> None:
        """Remove the container; `wait` returns when that is done."""
        self._killed.set()
        self._hurry.set()

    async def _run_to_end(self) -> ExitStatus:
        try:
            ended = await self._watch()
        finally:
            self._output.close()
            await bury(self._sandbox, self._remote.request)
        return ExitStatus(ended.code, self._log_error)

    async def _watch(self) -> ExitStatus:
        silent_since: float | None = None
        while not self._killed.is_set():
            try:
                with told("looking at a sandbox"):
                    async with asyncio.timeout(self._remote.request):
                        status = await self._sandbox.commands.get_command_status(self._command)
                        await self._copy_output()
                        await self._renew()
            except SandboxUnavailable as error:
                if is_gone(error.__cause__):
                    return KILLED  # the container or the program is gone
                now = time.monotonic()
                silent_since = silent_since or now
                if now - silent_since > self._remote.lost:
                    raise
                log.warning("sandbox %s: %s", self._sandbox.id, error.message)
            else:
                silent_since = None
                if status.running is False:
                    return _ended(status)
            await self._pause()
        return KILLED

    async def _pause(self) -> None:
        hurried = self._hurry.is_set()
        waited = self._killed if hurried else self._hurry
        with suppress(TimeoutError):
            async with asyncio.timeout(HURRY if hurried else self._remote.poll):
                await waited.wait()

    async def _copy_output(self) -> None:
        found = await self._sandbox.commands.get_background_command_logs(
            self._command, cursor=self._cursor
        )
        if found.cursor is None or found.cursor <= self._cursor:
            return
        self._cursor = found.cursor
        if self._log_error:
            return
        try:
            self._output.write(found.content.encode())
        except OSError as error:
            self._log_error = str(error)

    async def _renew(self) -> None:
        if time.monotonic() - self._renewed < self._remote.lifetime / 3:
            return
        await self._sandbox.renew(timedelta(seconds=self._remote.lifetime))
        self._renewed = time.monotonic()


def _ended(status: CommandStatus) -> ExitStatus:
    return ExitStatus(exit_status(status.exit_code, status.error or ""))
