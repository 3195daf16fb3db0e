"""One running bubblewrap sandbox: waiting for it, and ending all of it.

The processes, outermost first: bwrap's monitor on the host (`pid`), which waits; the sandbox's process 1, which reaps;
the program, which is process 2. When the program ends the monitor ends, whose death kills process 1
(`--die-with-parent`; without it process 1 would wait for every child). With process 1 the kernel kills the whole
namespace, forked and detached processes included (pid_namespaces(7)).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from postroom.errors import SandboxUnavailable
from postroom.sandbox.output import OutputLog, drain, tail
from postroom.sandbox.port import ExitStatus, Level

KILL_DEADLINE = 10.0
"""Seconds until killed processes must be gone; only a process stuck in the kernel takes longer."""
SIGNALLED = 128


class BubblewrapHandle:
    """See `SandboxHandle`. Made by `BubblewrapProvider.start`, which calls `begin` once."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        log: OutputLog,
        path: Path,
        level: Level,
        unavailable: Callable[[str], SandboxUnavailable],
    ) -> None:
        self.level = level
        self._unavailable = unavailable
        self._process = process
        self._log = log
        self._log_path = path
        self._init_pid: int | None = None
        self._init_fd: int | None = None
        self._killed = False
        self._begun = asyncio.Event()

    @property
    def pid(self) -> int:
        """Host process id of bwrap's monitor."""
        return self._process.pid

    @property
    def init_pid(self) -> int | None:
        """Host process id of the sandbox's process 1."""
        return self._init_pid

    async def begin(self, status: BinaryIO, deadline: float) -> None:
        """Read the process id of the sandbox's process 1 from `status`; from then on `kill` works.

        Raises:
            SandboxUnavailable: bwrap ended without one, or made none in time.
        """
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        piped, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), status
        )
        # From here on a task waits for the process, whatever happens to this call.
        self._end = asyncio.create_task(self._run_to_end(reader), name="sandbox")
        # uvloop leaves a pipe open that has come to its end.
        self._end.add_done_callback(lambda _: piped.close())
        try:
            async with asyncio.timeout(deadline):
                await self._begun.wait()
        except BaseException as error:
            self.kill()
            if isinstance(error, TimeoutError):
                raise SandboxUnavailable("bwrap did not start a sandbox in time") from error
            raise
        if self._init_pid is None:
            self.kill()
            async with asyncio.timeout(KILL_DEADLINE):
                await self.wait()
            raise self._unavailable(tail(self._log_path))

    async def wait(self) -> ExitStatus:
        """Wait for the end of every process (see `SandboxHandle.wait`)."""
        return await asyncio.shield(self._end)

    async def stop(self, grace: float) -> ExitStatus:
        """SIGTERM to the program, after `grace` seconds SIGKILL to all."""
        if not self._end.done():
            if not self._terminate():
                self.kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    return await self.wait()
            self.kill()
        async with asyncio.timeout(KILL_DEADLINE):
            return await self.wait()

    def kill(self) -> None:
        """SIGKILL to process 1, and so by the kernel to all."""
        self._killed = True
        with suppress(ProcessLookupError):
            if self._init_fd is not None:
                signal.pidfd_send_signal(self._init_fd, signal.SIGKILL)
            elif self._process.returncode is None:
                self._process.kill()  # its death signal ends the sandbox

    def _terminate(self) -> bool:
        # A signal to the monitor would kill everything at once; process 1 ignores SIGTERM.
        program = None if self._init_pid is None else _first_child(self._init_pid)
        if program is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(program, signal.SIGTERM)
        return True

    async def _run_to_end(self, status: asyncio.StreamReader) -> ExitStatus:
        try:
            self._note_init(await status.readline())
        finally:
            self._begun.set()
        log_error = await drain(self._process.stdout, self._log)
        report = await status.read()
        returned = await self._process.wait()
        await self._gone()
        code = SIGNALLED - returned if returned < 0 else returned
        never_ran = b'"exit-code"' not in report and 0 < code <= SIGNALLED
        if never_ran and not self._killed:
            raise self._unavailable(tail(self._log_path))
        return ExitStatus(code, log_error)

    def _note_init(self, line: bytes) -> None:
        # No line means that bwrap ended early, a strange line that this is not bwrap: `begin` raises for both.
        with suppress(ValueError, KeyError, TypeError, ProcessLookupError):
            self._init_pid = int(json.loads(line)["child-pid"])
            self._init_fd = os.pidfd_open(self._init_pid)

    async def _gone(self) -> None:
        """Wait until process 1 is gone: it ends last, also when something killed the monitor."""
        if self._init_fd is None:
            return
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._init_fd, gone.set)
        try:
            async with asyncio.timeout(KILL_DEADLINE):
                await gone.wait()
        finally:
            loop.remove_reader(self._init_fd)
            os.close(self._init_fd)
            self._init_fd = None


def _first_child(init: int) -> int | None:
    """Host process id of process 2 in the namespace of `init`, None without one."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            fields = _status(entry / "status")
            if fields.get("PPid") == [str(init)] and fields.get("NSpid", [""])[-1] == "2":
                return int(entry.name)
    return None


def _status(path: Path) -> dict[str, list[str]]:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
