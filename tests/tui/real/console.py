"""`postroom` in a real terminal, as a person sees it: a pseudo terminal whose bytes pyte reads, or tmux."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import shutil
import signal
import struct
import subprocess
import termios
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import pyte

from tests.cli.conftest import LIMIT, command, environment

TMUX = shutil.which("tmux")


class Console(Protocol):
    """A terminal in which the screen runs."""

    def lines(self) -> list[str]:
        """What it shows now."""
        ...

    def type(self, text: str) -> None:
        """Press keys; control characters and escape sequences are those that a terminal sends."""
        ...

    def resize(self, columns: int, lines: int) -> None:
        """As a person who drags the window."""
        ...

    def ended(self) -> bool:
        """Whether the program has ended."""
        ...


async def shows(console: Console, wanted: Callable[[str], bool] | str) -> str:
    """Wait until the terminal shows it; all that it shows then."""
    ends = time.monotonic() + LIMIT
    while True:
        text = await asyncio.to_thread(lambda: "\n".join(console.lines()))
        if wanted in text if isinstance(wanted, str) else wanted(text):
            return text
        assert time.monotonic() < ends, f"it does not show {wanted!r}:\n{text}"
        await asyncio.sleep(0.03)


async def left(console: Console) -> None:
    """Wait until the program has ended."""
    ends = time.monotonic() + LIMIT
    while not await asyncio.to_thread(console.ended):
        assert time.monotonic() < ends, "it has not ended:\n" + "\n".join(console.lines())
        await asyncio.sleep(0.03)


class PyteConsole:
    """A pseudo terminal; `raw` is every byte that the program has written to it."""

    def __init__(
        self,
        words: list[str],
        columns: int,
        lines: int,
        *,
        folder: Path | None = None,
        env: Mapping[str, str] | None = None,
        **more: str,
    ) -> None:
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._fd, far = pty.openpty()
        self._set_size(columns, lines)
        self.process = subprocess.Popen(
            command(*words),
            stdin=far,
            stdout=far,
            stderr=far,
            env=_environment() | {"TERM": "xterm-256color"} | more | dict(env or {}),
            cwd=folder,
            start_new_session=True,
        )
        os.close(far)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the other side is closed
            data = b""
        if not data:
            self._loop.remove_reader(self._fd)
            return
        self.raw += data
        self._stream.feed(data)

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def resize(self, columns: int, lines: int) -> None:
        self._set_size(columns, lines)
        self.screen.resize(lines, columns)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def ended(self) -> bool:
        return self.process.poll() is not None

    def hang_up(self) -> None:
        """As a window that is closed."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = os.open(os.devnull, os.O_RDWR)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(LIMIT)
        os.close(self._fd)


class TmuxConsole:
    """A session of a tmux server of its own."""

    def __init__(
        self, words: list[str], columns: int, lines: int, *, socket: Path, **more: str
    ) -> None:
        self._socket = socket
        given = [f"{key}={value}" for key, value in (_environment() | more).items()]
        size = ["-x", str(columns), "-y", str(lines)]
        self._tmux(
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-s",
            "it",
            *size,
            "env",
            *given,
            *command(*words),
        )
        self._tmux("set-option", "-g", "remain-on-exit", "on")

    def _tmux(self, *words: str) -> str:
        assert TMUX is not None
        done = subprocess.run(
            [TMUX, "-S", str(self._socket), *words],
            text=True,
            capture_output=True,
            check=True,
            timeout=LIMIT,
        )
        return done.stdout

    def lines(self) -> list[str]:
        return self._tmux("capture-pane", "-p", "-t", "it").splitlines()

    def type(self, text: str) -> None:
        self._tmux("send-keys", "-t", "it", "-H", *(f"{byte:x}" for byte in text.encode()))

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-t", "it", "-x", str(columns), "-y", str(lines))

    def ended(self) -> bool:
        return self._tmux("display-message", "-p", "-t", "it", "#{pane_dead}").strip() == "1"

    def close(self) -> None:
        self._tmux("kill-server")


def _environment() -> dict[str, str]:
    dropped = {"COLUMNS", "LINES", "NO_COLOR", "TERM", "TMUX", "POSTROOM_NO_TUI"}
    return {key: value for key, value in environment().items() if key not in dropped}


@asynccontextmanager
async def in_pyte(
    *words: str,
    columns: int = 80,
    lines: int = 24,
    folder: Path | None = None,
    env: Mapping[str, str] | None = None,
    **more: str,
) -> AsyncGenerator[PyteConsole]:
    """`postroom` with `words` in a pseudo terminal, in `folder`."""
    console = PyteConsole(list(words), columns, lines, folder=folder, env=env, **more)
    try:
        yield console
    finally:
        console.close()


@asynccontextmanager
async def in_tmux(
    folder: Path, *words: str, columns: int = 80, lines: int = 24, **more: str
) -> AsyncGenerator[TmuxConsole]:
    """The same in tmux, whose socket is made in `folder`."""
    console = await asyncio.to_thread(
        lambda: TmuxConsole(list(words), columns, lines, socket=folder / "tmux", **more)
    )
    try:
        yield console
    finally:
        await asyncio.to_thread(console.close)
