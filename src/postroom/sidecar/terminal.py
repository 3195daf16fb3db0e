"""A terminal in the sandbox: a shell on a pseudo terminal, joined to the control plane by two requests.

The pseudo terminal is the sidecar's own, or execd's where there is one (`execd_terminal`).

The sidecar dials out for both, through the gateway as for all else. The shell starts when the control plane has taken
the first of them, so a record of a terminal that nobody waits for any more has no effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import termios
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from postroom.errors import PostroomError
from postroom.http.client import HttpClient
from postroom.observe import get_logger
from postroom.protocol.terminals import (
    BEAT_EVERY,
    MAX_PIECE,
    FrameKind,
    FrameReader,
    check_size,
    end,
    failed,
    frame,
    size_in,
)
from postroom.sidecar.process import exited

SHELLS = ("bash", "sh")
"""The shells that are tried, in this order."""

HANGUP_GRACE = 1.0
"""Seconds between SIGHUP and SIGKILL."""

LAST_WORDS = 0.2
"""Seconds for what was printed before the shell's end."""

TERM = "xterm-256color"

_ATTACH = 'tty=$1; shift; exec "$@" <>"$tty" >&0 2>&1'
"""A new session gets as its controlling terminal the first that it opens (tty_ioctl(4))."""

_log = get_logger(__name__)


class Shell(Protocol):
    """A shell on a pseudo terminal. Its end shows in `read`; `ended` says more."""

    async def resize(self, size: tuple[int, int]) -> None:
        """Give it another size; who runs in the foreground gets a SIGWINCH."""

    async def read(self) -> bytes:
        """What was printed since, at most `MAX_PIECE` bytes; b"" at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Type `data`, as fast as it is read; nothing once the shell has ended."""

    async def ended(self) -> int:
        """Wait for the shell's end; its exit status, 128 and more for a signal.

        Raises:
            PostroomError: it was lost.
        """
        ...

    async def close(self) -> None:
        """Hang up: the shell and its jobs get a SIGHUP, and what is left of the shell's group is killed; idempotent."""


OpenShell = Callable[[tuple[int, int]], Awaitable[Shell]]
"""Opens a shell in a terminal of that size (columns and rows); raises PostroomError or OSError."""


class Terminal(Shell):
    """A `Shell` on a pseudo terminal of the sidecar; made by `start`."""

    def __init__(self, popen: subprocess.Popen[bytes], master: int, slave: int) -> None:
        self._popen = popen
        self._master = master
        # Open as long as the shell lives: before it has opened its end, a read would find that nobody has.
        self._slave = slave
        self._closed = False

    @classmethod
    def start(cls, env: Mapping[str, str], cwd: str, size: tuple[int, int]) -> Terminal:
        """Start the shell in `cwd`, in a terminal of `size` (columns and rows); raises OSError."""
        master, slave = os.openpty()
        try:
            os.set_blocking(master, False)
            _set_size(slave, size)
            popen = subprocess.Popen(
                ("/bin/sh", "-c", _ATTACH, "sh", os.ttyname(slave), shell_of(env), "-i"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**env, "TERM": TERM},
                cwd=cwd or None,
                start_new_session=True,
            )
        except BaseException:
            os.close(master)
            os.close(slave)
            raise
        return cls(popen, master, slave)

    async def resize(self, size: tuple[int, int]) -> None:
        if not self._closed:
            _set_size(self._master, size)

    async def read(self) -> bytes:
        while not self._closed:
            try:
                return os.read(self._master, MAX_PIECE)
            except BlockingIOError:
                await self._ready(reading=True)
            except OSError:  # EIO: the last one that had it open has closed it
                return b""
        return b""

    async def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest and not self._closed:
            try:
                rest = rest[os.write(self._master, rest) :]
            except BlockingIOError:
                await self._ready(reading=False)
            except OSError:
                return  # the shell has ended

    async def ended(self) -> int:
        await exited(self._popen.pid)
        # Ours was the only other one that has it open: a reader finds the end behind what was printed.
        self._let_go()
        code = self._popen.wait()
        return code if code >= 0 else 128 - code

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._master)
        loop.remove_writer(self._master)
        self._let_go()
        os.close(self._master)
        if self._popen.returncode is None:
            self._signal(signal.SIGHUP)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HANGUP_GRACE):
                    await exited(self._popen.pid)
            self._signal(signal.SIGKILL)
            self._popen.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._popen.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)

    def _let_go(self) -> None:
        if self._slave >= 0:
            os.close(self._slave)
            self._slave = -1

    async def _ready(self, *, reading: bool) -> None:
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        add, remove = (
            (loop.add_reader, loop.remove_reader)
            if reading
            else (loop.add_writer, loop.remove_writer)
        )
        add(self._master, woken.set)
        try:
            await woken.wait()
        finally:
            if not self._closed:
                remove(self._master)


async def own_shell(env: Mapping[str, str], cwd: str, size: tuple[int, int]) -> Shell:
    """Open a shell on a pseudo terminal of the sidecar; raises OSError."""
    return Terminal.start(env, cwd, size)


def shell_of(env: Mapping[str, str]) -> str:
    """The shell that is opened in an environment."""
    path = env.get("PATH")
    found = (shutil.which(name, path=path) for name in SHELLS)
    return next((shell for shell in found if shell), "/bin/sh")


def _set_size(descriptor: int, size: tuple[int, int]) -> None:
    columns, rows = size
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminals:
    """Opens the terminals that people ask for, one at a time; use it in a `with` statement of its own task group.

    Args:
        control: the control plane, through the gateway.
        uid: of the worker.
    """

    def __init__(self, control: HttpClient, uid: str, open_shell: OpenShell) -> None:
        self._control = control
        self._base = f"/v1/workers/{uid}/terminals"
        self._open_shell = open_shell
        self._asked: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue(1)

    async def open(self, record: Mapping[str, Any]) -> None:
        """Open the terminal of a control record. It takes the place of one that is open: its person has gone."""
        if record.get("state") != "opened":
            return
        while not self._asked.empty():
            self._asked.get_nowait()
        self._asked.put_nowait(record)

    async def run(self) -> None:
        """Serve the terminals until it is cancelled."""
        asked = await self._asked.get()
        while True:
            serving = asyncio.ensure_future(self._serve(asked))
            waiting = asyncio.ensure_future(self._asked.get())
            try:
                await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    await serving
                asked = await waiting
            finally:
                waiting.cancel()
                serving.cancel()
                await asyncio.wait({serving})

    async def _serve(self, record: Mapping[str, Any]) -> None:
        try:
            size = check_size(int(record["cols"]), int(record["rows"]))
            place = f"{self._base}/{record['terminal']}"
            async with await self._control.ask("GET", f"{place}/input") as answer:
                if answer.status != 200:
                    _log.info("a terminal is not waited for any more")
                    return
                await self._join(place, size, answer.pieces())
        except (PostroomError, OSError) as error:
            _log.warning("a terminal has ended: %s", error)
        except (KeyError, TypeError, ValueError):
            _log.warning("a record of a terminal is malformed")

    async def _join(self, place: str, size: tuple[int, int], typed: AsyncIterator[bytes]) -> None:
        """Join the shell to the two requests, until the shell or one of them ends."""
        try:
            terminal = await self._open_shell(size)
        except (PostroomError, OSError) as error:
            async with await self._control.ask("POST", f"{place}/output", body=_refused(error)):
                raise
        try:
            up = asyncio.ensure_future(
                self._control.ask("POST", f"{place}/output", body=printed(terminal))
            )
            down = asyncio.ensure_future(_type(terminal, typed))
            try:
                await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
                if down.done():
                    down.result()
                else:
                    up.result().close()
            finally:
                up.cancel()
                down.cancel()
                await asyncio.gather(up, down, return_exceptions=True)
        finally:
            await terminal.close()


async def _refused(error: Exception) -> AsyncGenerator[bytes]:
    """The frame of a terminal that could not be opened."""
    yield failed(str(error))


async def _type(terminal: Shell, typed: AsyncIterator[bytes]) -> None:
    """Type what the person types; returns when the person has gone."""
    reader = FrameReader()
    async for piece in typed:
        for kind, rest in reader.feed(piece):
            match kind:
                case FrameKind.DATA:
                    await terminal.write(rest)
                case FrameKind.RESIZE:
                    await terminal.resize(size_in(rest))
                case FrameKind.END:
                    return


async def printed(terminal: Shell) -> AsyncGenerator[bytes]:
    """What the shell prints, as frames, up to its exit status."""
    ended = asyncio.ensure_future(terminal.ended())
    reading = asyncio.ensure_future(terminal.read())
    try:
        while True:
            wait = LAST_WORDS if ended.done() else BEAT_EVERY
            done, _ = await asyncio.wait(
                {reading} if ended.done() else {reading, ended},
                timeout=wait,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if reading in done:
                if not (data := reading.result()):
                    break
                yield frame(FrameKind.DATA, data)
                reading = asyncio.ensure_future(terminal.read())
            elif not done and ended.done():
                break  # a job that was left behind has the terminal open
            elif not done:
                yield frame(FrameKind.BEAT)
        try:
            last = end(await ended)
        except PostroomError as error:
            _log.warning("a terminal is broken: %s", error)
            last = failed(error.message)
        yield last
    finally:
        ended.cancel()
        reading.cancel()
