"""Programs under a reaper, for the providers without a process namespace.

The reaper (`postroom.sandbox.reaper`) ends all processes that the program leaves behind. Home, temporary files and
secrets lie in a private folder of the host beside the log, which the end removes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from contextlib import ExitStack, suppress
from pathlib import Path

from postroom.sandbox import reaper
from postroom.sandbox.cgroups import entering
from postroom.sandbox.limits import SCRIPT
from postroom.sandbox.memfd import memory_file
from postroom.sandbox.output import OutputLog, drain
from postroom.sandbox.port import ExitStatus, Level, SandboxPaths, SandboxSpec

KILL_DEADLINE = 10.0
SIGNALLED = 128


def local_paths(spec: SandboxSpec) -> SandboxPaths:
    """The host's own paths; secrets, home and temporary files lie in the private folder."""
    runtime = runtime_folder(spec)
    return SandboxPaths(
        workspace=str(spec.workspace.absolute()),
        state=str((spec.state or runtime / "state").absolute()),
        gateway_socket="" if spec.gateway_socket is None else str(spec.gateway_socket.absolute()),
        secrets=str(runtime / "secrets"),
        home=str(runtime / "home"),
        mounts={mount.target: str(mount.source.absolute()) for mount in spec.read_only},
        tmp=str(runtime / "tmp"),
    )


def runtime_folder(spec: SandboxSpec) -> Path:
    """The private folder of a sandbox that runs `spec`."""
    return spec.stderr_log.absolute().with_name(f"{spec.stderr_log.name}.run")


def make_runtime(spec: SandboxSpec) -> None:
    """Make the private folder with its empty folders; remove what a killed run has left."""
    runtime = runtime_folder(spec)
    shutil.rmtree(runtime, ignore_errors=True)
    for folder in (runtime, *(runtime / name for name in ("secrets", "home", "state", "tmp"))):
        folder.mkdir(mode=0o700)


async def start_reaped(
    spec: SandboxSpec, command: tuple[str, ...], level: Level, *, memory: bool = False
) -> ReapedHandle:
    """Run `command` instead of the program of `spec`, under a reaper; call `make_runtime` before.

    Args:
        memory: keep secrets in memory, behind descriptors that the program inherits (Linux).
    """
    runtime = runtime_folder(spec)
    try:
        with ExitStack() as lent:
            descriptors = _put_secrets(spec, lent, memory)
            log = OutputLog(spec.stderr_log)
            script = [*SCRIPT, reaper.__file__, str(os.getpid()), "--", *command]
            process = await asyncio.create_subprocess_exec(
                *entering(spec.group, script),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=dict(spec.env),
                cwd=spec.workdir,
                start_new_session=True,
                pass_fds=descriptors,
            )
    except BaseException:
        shutil.rmtree(runtime, ignore_errors=True)
        raise
    return ReapedHandle(process, log, runtime, level)


def _put_secrets(spec: SandboxSpec, lent: ExitStack, memory: bool) -> list[int]:
    descriptors = []
    for name, content in spec.secrets.items():
        if memory:
            descriptors.append(lent.enter_context(memory_file(content)))
            Path(name).symlink_to(f"/proc/self/fd/{descriptors[-1]}")
            continue
        with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
    return descriptors


class ReapedHandle:
    """See `SandboxHandle`. The outermost process is the reaper (`postroom.sandbox.reaper`)."""

    def __init__(
        self, process: asyncio.subprocess.Process, log: OutputLog, runtime: Path, level: Level
    ) -> None:
        self.level = level
        self._process = process
        self._log = log
        self._runtime = runtime
        self._end = asyncio.create_task(self._run_to_end(), name="kept process")

    @property
    def pid(self) -> int:
        """Process id of the reaper."""
        return self._process.pid

    async def wait(self) -> ExitStatus:
        """Wait for the end of the program and of all that it started."""
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
        """SIGKILL to all but the reaper, which ends by itself and takes latecomers along."""
        if self._process.returncode is None:
            reaper.kill_descendants(self._process.pid)

    async def _run_to_end(self) -> ExitStatus:
        try:
            log_error = await drain(self._process.stdout, self._log)
            returned = await self._process.wait()
        finally:
            shutil.rmtree(self._runtime, ignore_errors=True)
        return ExitStatus(SIGNALLED - returned if returned < 0 else returned, log_error)
