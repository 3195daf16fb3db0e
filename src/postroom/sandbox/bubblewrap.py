"""The enforced wall on Linux: bubblewrap with every namespace, and a system call filter.

docs/security.md has the table of its parts, and of the measured reason for each. The program sees a private network
with loopback only, its own processes only, system folders read-only, and one socket: the gateway's.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from postroom.errors import InvalidInput, PostroomError, SandboxUnavailable
from postroom.sandbox import binary, bubblewrap_errors, kernel, never, policy, python_home, seccomp
from postroom.sandbox.arguments import OWN_ETC, PATHS, SHOWN, HostView, options, system_links
from postroom.sandbox.bubblewrap_handle import BubblewrapHandle
from postroom.sandbox.cgroups import entering
from postroom.sandbox.limits import limited
from postroom.sandbox.memfd import memory_file
from postroom.sandbox.output import OutputLog
from postroom.sandbox.port import Capability, Level, SandboxPaths, SandboxSpec
from postroom.sandbox.wall_test import try_wall

NAME = "bubblewrap"
START_DEADLINE = 10.0
"""Seconds until bwrap must have reported the process id of its sandbox; it takes milliseconds."""


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
        self._candidates = binary.candidates(configured)
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
                f"there is no bwrap program{where}", f"{instead}{bubblewrap_errors.INSTALL}"
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
            raise SandboxUnavailable("there is no bwrap program", remedy=bubblewrap_errors.INSTALL)
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
            self._pins[program] = await binary.binds_descriptors(program)
        return self._pins[program]

    async def _try(self) -> Capability:
        try:
            return await try_wall(self)
        except PostroomError as error:
            return self._none(f"{self._binary}: {error.message}", error.remedy)
        except OSError as error:
            return self._none(f"{self._binary}: {error}", bubblewrap_errors.INSTALL)

    def _none(self, detail: str, remedy: str) -> Capability:
        return Capability(self.name, Level.NONE, detail, remedy)

    def _command(self) -> list[str]:
        """The words that run bwrap; its options follow."""
        return [str(self._binary)]

    def _unavailable(self, output: str) -> SandboxUnavailable:
        """The error for a start that failed with `output`."""
        return bubblewrap_errors.unavailable(output)


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
