"""One run of the agent program: its processes, its pipes, its end.

The program leads a session of its own, so that a signal reaches it and all that it started. The sidecar awaits its end
by a pidfd and not by its pipes: a child that it leaves behind may hold those open for ever.

Its standard input is a pipe of one page, so that "writable" means "all of it was read": `fcntl(F_SETPIPE_SZ)` makes a
pipe hold a single buffer, and poll(2) reports such a pipe as writable only when the reader has emptied it (pipe(7)).
So the sidecar can report `delivered` without asking the agent.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import select
import signal
import subprocess
import termios
from collections.abc import Mapping
from dataclasses import dataclass

PIPE_CAPACITY = 64 * 1024
"""Bytes in a pipe (pipe(7))."""

PAGE = 4096

_F_SETPIPE_SZ = getattr(fcntl, "F_SETPIPE_SZ", 0)


@dataclass(frozen=True, slots=True)
class Exit:
    """How the program ended: its exit code, or the signal that ended it (else 0)."""

    code: int
    signal: int = 0

    @property
    def detail(self) -> str:
        """For people."""
        return f"killed by signal {self.signal}" if self.signal else f"exit code {self.code}"


class AgentInput:
    """Write end of the program's standard input; the caller allows one writer at a time.

    Where the system cannot make a pipe of one page, `drained` counts the bytes in the pipe and may notice late.
    """

    def __init__(self) -> None:
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        if _F_SETPIPE_SZ:
            fcntl.fcntl(self._write_end, _F_SETPIPE_SZ, PAGE)
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    def close_read_end(self) -> None:
        """Close our copy of the agent's end, so that we notice when the agent closes its own; idempotent."""
        if self.read_end >= 0:
            os.close(self.read_end)
            self.read_end = -1

    async def write(self, data: bytes) -> None:
        """Put all of `data` into the pipe, as fast as the agent reads.

        Raises:
            BrokenPipeError: the agent has closed its input.
        """
        rest = memoryview(data)
        while rest:
            if self._closed:
                raise BrokenPipeError
            try:
                written = os.write(self._write_end, rest)
            except BlockingIOError:
                await self._writable()
            else:
                rest = rest[written:]

    async def drained(self) -> None:
        """Wait until the agent has read all of it. Raises as `write`."""
        while self._unread():
            if self._abandoned():
                raise BrokenPipeError
            await self._writable()

    def close(self) -> None:
        """Close the pipe: the agent reads the end of its input; a waiting writer gets a BrokenPipeError."""
        self.close_read_end()
        if self._closed:
            return
        self._closed = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(BrokenPipeError())
        asyncio.get_running_loop().remove_writer(self._write_end)
        os.close(self._write_end)

    def _unread(self) -> int:
        if self._closed:
            raise BrokenPipeError
        count = array.array("i", [0])
        fcntl.ioctl(self._write_end, termios.FIONREAD, count)
        return count[0]

    def _abandoned(self) -> bool:
        poller = select.poll()
        poller.register(self._write_end, select.POLLOUT)
        return any(events & select.POLLERR for _, events in poller.poll(0))

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiter = waiter
        loop.add_writer(self._write_end, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if not self._closed:
                loop.remove_writer(self._write_end)


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
        """Start the program; raises OSError."""
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
        """Wait for the program's end, kill the rest of its group, and reap it."""
        await exited(self.pid)
        # Before the program is reaped: while it is a zombie, no other group can get its id.
        self.send_signal(signal.SIGKILL)
        code = self._popen.wait()
        return Exit(code) if code >= 0 else Exit(128 - code, -code)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the program's group, if any of it is left."""
        if self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def read_rest(self) -> None:
        """After its end: take the rest out of its pipes and close them, even if a child holds them open."""
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
    """The content of a pipe now, at most what a pipe holds by default: a surviving child may go on writing."""
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


async def exited(pid: int) -> None:
    """Wait until the child `pid` has ended, without reaping it."""
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


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
