"""The enforced wall on Linux: bubblewrap with every namespace, and a system call filter.

docs/security.md has the table of its parts, and of the measured reason for each. The program sees a private network
with loopback only, its own processes only, system folders read-only, and one socket: the gateway's.

The processes of a running sandbox, outermost first: bwrap's monitor on the host (`pid`), which waits; the sandbox's
process 1, which reaps; the program, which is process 2. When the program ends the monitor ends, whose death kills
process 1 (`--die-with-parent`; without it process 1 would wait for every child). With process 1 the kernel kills the
whole namespace, forked and detached processes included (pid_namespaces(7)).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from postroom.errors import InvalidInput, PostroomError, SandboxUnavailable
from postroom.sandbox import bubblewrap_program, kernel, never, policy, python_home, seccomp
from postroom.sandbox.arguments import OWN_ETC, PATHS, SHOWN, HostView, options, system_links
from postroom.sandbox.cgroups import entering
from postroom.sandbox.limits import limited
from postroom.sandbox.memfd import memory_file
from postroom.sandbox.output import OutputLog, drain, tail
from postroom.sandbox.port import Capability, ExitStatus, Level, SandboxPaths, SandboxSpec
from postroom.sandbox.wall_test import try_wall

NAME = "bubblewrap"
START_DEADLINE = 10.0
"""Seconds until bwrap must have reported the process id of its sandbox; it takes milliseconds."""

KILL_DEADLINE = 10.0
"""Seconds until killed processes must be gone; only a process stuck in the kernel takes longer."""
SIGNALLED = 128


class BubblewrapProvider:
    """Starts sandboxes with the first bwrap that passed `probe`, or the first found at all.

    Args:
        configured: the bwrap to use, and no other; None looks in the usual places.
    """

    name = NAME
    states = Level.ENFORCED
    holes: frozenset[str] = frozenset()
    covers = True
    shown = SHOWN
    own_network = True
    """Whether bubblewrap makes the network namespace; otherwise it starts in one."""

    def __init__(self, configured: Path | None = None) -> None:
        self._candidates = bubblewrap_program.candidates(configured)
        self._binary = self._candidates[0] if self._candidates else None
        self._configured = configured
        self._proven = Level.NONE
        self._pins: dict[Path, bool] = {}

    async def probe(self) -> Capability:
        """Start a real sandbox around the wall self-test, with each bwrap until one holds."""
        if sys.platform != "linux":
            return self._none("bubblewrap runs on Linux only", "choose another provider")
        if not self._candidates:
            where = f" at {self._configured}" if self._configured else ""
            instead = "postroom config unset sandbox.bwrap; or " if self._configured else ""
            return self._none(
                f"there is no bwrap program{where}", f"{instead}{bubblewrap_program.INSTALL}"
            )
        refused: list[Capability] = []
        for candidate in self._candidates:
            self._binary = candidate
            capability = await self._try()
            self._proven = capability.level
            if capability.level is Level.ENFORCED:
                return capability
            refused.append(capability)
        return refused[-1]

    def paths(self, spec: SandboxSpec) -> SandboxPaths:
        """The same paths for every sandbox, since each has its own view of the file system."""
        mounts = {mount.target: mount.target for mount in spec.read_only}
        socket = "" if spec.gateway_socket is None else PATHS.gateway_socket
        return replace(PATHS, gateway_socket=socket, mounts=mounts)

    async def start(self, spec: SandboxSpec) -> BubblewrapHandle:
        """Start `spec` behind the wall (see `SandboxProvider.start`)."""
        policy.check(spec, self.paths(spec), covers=self.covers)
        if self._binary is None:
            raise SandboxUnavailable("there is no bwrap program", remedy=bubblewrap_program.INSTALL)
        python = python_home.folders()
        policy.check_code(spec, python)
        as_root = os.geteuid() == 0
        pins = await self._binds_descriptors(self._binary)
        host = HostView(python, system_links(), as_root, kernel.hidden(), self.own_network)
        # `lent` is for bwrap alone; `kept` passes to the handle, unless starting fails.
        with ExitStack() as lent, ExitStack() as kept:
            contents = {**OWN_ETC, **spec.secrets}
            files = {name: lent.enter_context(memory_file(data)) for name, data in contents.items()}
            judged = _judged(spec)
            places = {name: lent.enter_context(_held(judged[name])) for name in judged}
            shown = options(spec, host, files, places if pins else {})
            words = "\0".join(shown).encode(errors="surrogateescape")
            args = lent.enter_context(memory_file(words))
            rules = lent.enter_context(memory_file(seccomp.program()))
            status, report = _pipe(kept, lent)
            log = kept.enter_context(closing(OutputLog(spec.stderr_log)))
            command = [*self._command(), "--args", str(args), "--seccomp", str(rules)]
            command += ["--json-status-fd", str(report), "--", *limited(spec, alone=True)]
            process = await _spawn(
                entering(spec.group, command),
                (*files.values(), *places.values(), args, rules, report),
            )
            kept.pop_all()
        handle = BubblewrapHandle(process, log, spec.stderr_log, self._proven, self._unavailable)
        await handle.begin(status, START_DEADLINE)
        return handle

    async def _binds_descriptors(self, program: Path) -> bool:
        if program not in self._pins:
            self._pins[program] = await bubblewrap_program.binds_descriptors(program)
        return self._pins[program]

    async def _try(self) -> Capability:
        try:
            return await try_wall(self)
        except PostroomError as error:
            return self._none(f"{self._binary}: {error.message}", error.remedy)
        except OSError as error:
            return self._none(f"{self._binary}: {error}", bubblewrap_program.INSTALL)

    def _none(self, detail: str, remedy: str) -> Capability:
        return Capability(self.name, Level.NONE, detail, remedy)

    def _command(self) -> list[str]:
        """The words that run bwrap; its options follow."""
        return [str(self._binary)]

    def _unavailable(self, output: str) -> SandboxUnavailable:
        """The error for a start that failed with `output`."""
        return bubblewrap_program.unavailable(output)


def _judged(spec: SandboxSpec) -> dict[str, Path]:
    places = {mount.target: mount.source for mount in spec.read_only if mount.judged}
    return places | ({PATHS.workspace: spec.workspace} if spec.judged else {})


@contextmanager
def _held(place: Path) -> Generator[int]:
    """A descriptor of a judged place. From here on nobody can put another in its stead."""
    try:
        with never.opened(place) as (descriptor, name):
            policy.refuse_another(place, name)
            yield descriptor
    except OSError as error:
        raise InvalidInput(f"cannot share {place}: {error.strerror}") from error


def _pipe(reading: ExitStack, writing: ExitStack) -> tuple[BinaryIO, int]:
    """A pipe: its reading end as a file, its writing end as a descriptor, each with its owner."""
    read, write = os.pipe()
    writing.callback(os.close, write)
    return reading.enter_context(os.fdopen(read, "rb", buffering=0)), write


async def _spawn(command: list[str], lent: tuple[int, ...]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        # Empty: process 1 is a fork of bwrap, so /proc/1/environ would show bwrap's environment inside.
        env={},
        pass_fds=lent,
    )


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
