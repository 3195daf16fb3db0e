"""A program in a pseudo-terminal, as a person sees it: a thread reads, pyte shows."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte

from tests.e2e.conftest import until

COLUMNS, LINES = 110, 50

_ANSWERS = {
    b"\x1b[6n": b"\x1b[1;1R",
    b"\x1b[c": b"\x1b[?62;c",
    b"\x1b[?u": b"\x1b[?0u",
    b"\x1b]10;?": b"\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
    b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x1b\\",
}
"""What a terminal answers when a program asks it for its kind, its colours and where the cursor is."""

_OWNED = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes the window the terminal of the program's session, as a terminal does, and becomes the program."""

ENTER, ESCAPE, DOWN, ERASE = "\r", "\x1b", "\x1b[B", "\x15"


class _Screen(pyte.Screen):
    """pyte's, which does not know a private form of colours."""

    def select_graphic_rendition(self, *attributes: int, private: bool = False) -> None:
        if not private:
            super().select_graphic_rendition(*attributes)


class Terminal:
    """A window with one program.

    Attributes:
        process: the program.
    """

    def __init__(self, words: Sequence[str], folder: Path, env: Mapping[str, str]) -> None:
        self._screen = _Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self._shown = threading.Lock()
        self._fd, far = pty.openpty()
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _OWNED, *words],
            stdin=far,
            stdout=far,
            stderr=far,
            cwd=folder,
            env={**env, "TERM": "xterm-256color"},
            start_new_session=True,
        )
        os.close(far)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other side is closed
            while data := os.read(self._fd, 65536):
                with self._shown:
                    self._stream.feed(data)
                for asked, answer in _ANSWERS.items():
                    if asked in data:
                        os.write(self._fd, answer)

    @property
    def text(self) -> str:
        """What it shows now."""
        with self._shown:
            return "\n".join(line.rstrip() for line in self._screen.display)

    def shows(self, *wanted: str) -> str:
        """Wait until it shows all of it; all that it shows then."""
        found = ""

        def all_there() -> bool:
            nonlocal found
            found = self.text
            return all(each in found for each in wanted)

        try:
            until(all_there)
        except AssertionError:
            raise AssertionError(f"it does not show {wanted}:\n{found}") from None
        return found

    def press(self, keys: str) -> None:
        """Press keys; control characters are those that a terminal sends."""
        os.write(self._fd, keys.encode())

    def kill(self) -> None:
        """SIGKILL the program."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        """Close the window."""
        self.kill()
        self._reader.join(5)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1
