"""One run of the agent program: its processes, its pipes, its end.

The program leads a session of its own, so that it and all it started can be ended together. Its end is awaited
through a pidfd and not through its pipes: a child that it leaves behind may hold those open for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from postroom.sidecar.stdin import AgentInput

PIPE_CAPACITY = 64 * 1024
"""Bytes in a pipe (pipe(7))."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How the program ended: its exit code, or the signal that ended it (else 0)."""

    code: int
    signal: int = 0

    @property
    def detail(self) -> str:
        """For people."""
        return f"killed by signal {self.signal}" if self.signal else f"exit code {self.code}"


class AgentProcess:
    """A running agent program; made by `start`."""

    def __init__(self, popen: subprocess.Popen[bytes], agent_input: AgentInput) -> None:
        self._popen = popen
        self.input = agent_input
        self.stdout = asyncio.StreamReader()
        self.stderr = asyncio.StreamReader()
        self._transports: dict[asyncio.StreamReader, asyncio.ReadTransport] = {}

    @classmethod
    async def start(
        cls, command: tuple[str, ...], env: Mapping[str, str], cwd: str
    ) -> AgentProcess:
        """Start the program.

        Raises:
            OSError: it cannot be started.
        """
        agent_input = AgentInput()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        try:
            popen = subprocess.Popen(  # noqa: ASYNC220 (returns when the program is executed, at once)
                command,
                stdin=agent_input.read_end,
                stdout=out_write,
                stderr=err_write,
                env=dict(env),
                cwd=cwd or None,
                start_new_session=True,
            )
        except OSError:
            agent_input.close()
            os.close(out_read)
            os.close(err_read)
            raise
        finally:
            os.close(out_write)
            os.close(err_write)
        agent_input.close_read_end()
        process = cls(popen, agent_input)
        await process._read(out_read, process.stdout)
        await process._read(err_read, process.stderr)
        return process

    @property
    def pid(self) -> int:
        """Process id of the program, which is also its process group."""
        return self._popen.pid

    async def ended(self) -> Exit:
        """Wait for the program's end, kill what it left of its group, and reap it."""
        await _exited(self.pid)
        # Before the program is reaped: as long as it is a zombie, its group id cannot be another's.
        self.send_signal(signal.SIGKILL)
        code = self._popen.wait()
        return Exit(code) if code >= 0 else Exit(128 - code, -code)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and to all of its group; nothing happens if there is none left."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def read_rest(self) -> None:
        """After its end: take what is left in its pipes and close them, whoever else holds them."""
        self.input.close()
        for reader, transport in self._transports.items():
            if not transport.is_closing():
                transport.pause_reading()
                reader.feed_data(_rest(transport.get_extra_info("pipe").fileno()))
            transport.close()

    def close(self) -> None:
        """End it by force if it still runs, and close the pipes; idempotent."""
        if self._popen.returncode is None:
            self.send_signal(signal.SIGKILL)
            self._popen.wait()
        self.input.close()
        for transport in self._transports.values():
            transport.close()

    async def _read(self, fd: int, reader: asyncio.StreamReader) -> None:
        loop = asyncio.get_running_loop()
        file = os.fdopen(fd, "rb", buffering=0)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), file
        )
        self._transports[reader] = transport


def _rest(fd: int) -> bytes:
    """What is in a pipe now, at most as much as a pipe holds by default: a survivor may go on writing."""
    found = bytearray()
    while len(found) < PIPE_CAPACITY:
        try:
            data = os.read(fd, PIPE_CAPACITY)
        except BlockingIOError:
            break
        if not data:
            break
        found += data
    return bytes(found)


async def _exited(pid: int) -> None:
    """Wait until the child `pid` has ended; it is not reaped."""
    if not hasattr(os, "pidfd_open"):
        await asyncio.to_thread(os.waitid, os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        return
    loop = asyncio.get_running_loop()
    fd = os.pidfd_open(pid)
    ended = asyncio.Event()
    try:
        loop.add_reader(fd, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)
