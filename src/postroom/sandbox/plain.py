"""No wall at all: a plain process with the rights of the user who runs Postroom.

Chosen by name only, never as a fall-back. The environment is cleared and the processes end as with a
wall, but the program can read and reach whatever the user can.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import suppress
from pathlib import Path

from postroom.sandbox import keeper, policy
from postroom.sandbox.limits import SCRIPT, limited
from postroom.sandbox.output import OutputLog, drain
from postroom.sandbox.port import Capability, ExitStatus, Level, SandboxPaths, SandboxSpec

NAME = "none"
KILL_DEADLINE = 10.0
SIGNALLED = 128


class PlainProvider:
    """Starts programs without a wall."""

    name = NAME

    async def probe(self) -> Capability:
        """Level `none`, always."""
        return Capability(NAME, Level.NONE, "a plain process: it can reach all that its user can")

    def paths(self, spec: SandboxSpec) -> SandboxPaths:
        """The host's own paths; secrets and home lie in a private folder beside the log."""
        runtime = _runtime(spec)
        return SandboxPaths(
            workspace=str(spec.workspace.absolute()),
            state=str((spec.state or runtime / "state").absolute()),
            gateway_socket=str(spec.gateway_socket.absolute()),
            secrets=str(runtime / "secrets"),
            home=str(runtime / "home"),
            mounts={mount.target: str(mount.source.absolute()) for mount in spec.read_only},
        )

    async def start(self, spec: SandboxSpec) -> PlainHandle:
        """Start `spec` as it is (see `SandboxProvider.start`)."""
        policy.check(spec, self.paths(spec))
        runtime = _runtime(spec)
        try:
            _fill(runtime, spec)
            log = OutputLog(spec.stderr_log)
            command = (keeper.__file__, str(os.getpid()), "--", *limited(spec.argv, spec.limits))
            process = await asyncio.create_subprocess_exec(
                *SCRIPT,
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=dict(spec.env),
                cwd=spec.workdir,
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(runtime, ignore_errors=True)
            raise
        return PlainHandle(process, log, runtime)


class PlainHandle:
    """See `SandboxHandle`. The outermost process is the keeper (`postroom.sandbox.keeper`)."""

    level = Level.NONE

    def __init__(self, process: asyncio.subprocess.Process, log: OutputLog, runtime: Path) -> None:
        self._process = process
        self._log = log
        self._runtime = runtime
        self._end = asyncio.create_task(self._run_to_end(), name="plain process")

    @property
    def pid(self) -> int:
        """Process id of the keeper."""
        return self._process.pid

    async def wait(self) -> ExitStatus:
        """Wait for the end of the program and of all it started."""
        return await asyncio.shield(self._end)

    async def stop(self, grace: float) -> ExitStatus:
        """SIGTERM to the program, after `grace` seconds SIGKILL to all."""
        if not self._end.done():
            with suppress(ProcessLookupError):
                self._process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    return await self.wait()
            self.kill()
        async with asyncio.timeout(KILL_DEADLINE):
            return await self.wait()

    def kill(self) -> None:
        """SIGKILL to all but the keeper, which then ends by itself and takes late-comers along."""
        if self._process.returncode is None:
            keeper.kill_descendants(self._process.pid)

    async def _run_to_end(self) -> ExitStatus:
        try:
            log_error = await drain(self._process.stdout, self._log)
            returned = await self._process.wait()
        finally:
            shutil.rmtree(self._runtime, ignore_errors=True)
        return ExitStatus(SIGNALLED - returned if returned < 0 else returned, log_error)


def _runtime(spec: SandboxSpec) -> Path:
    return spec.stderr_log.absolute().with_name(f"{spec.stderr_log.name}.run")


def _fill(runtime: Path, spec: SandboxSpec) -> None:
    shutil.rmtree(runtime, ignore_errors=True)  # left by a Postroom that was killed
    for folder in (runtime, runtime / "secrets", runtime / "home", runtime / "state"):
        folder.mkdir(mode=0o700)
    for name, content in spec.secrets.items():
        with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
