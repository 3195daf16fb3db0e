"""A command on a pseudo terminal of a chosen width, as a person sees it."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from pathlib import Path
from typing import Self

from tests.cli.conftest import LIMIT, command, environment

ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """Runs `postroom` with `arguments` on a terminal of `columns`; use it in a `with` statement.

    Args:
        screen: let the screen open; else it is the line mode.
        folder: in which it runs; None for that of the tests.
        more: variables of its environment.
    """

    def __init__(
        self,
        *arguments: str,
        columns: int = 80,
        lines: int = 30,
        screen: bool = False,
        folder: Path | None = None,
        **more: str,
    ) -> None:
        self._fd, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        if screen:
            more = {"POSTROOM_NO_TUI": ""} | more
        env = {
            key: value for key, value in environment().items() if key not in {"COLUMNS", "LINES"}
        } | more
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.process = subprocess.Popen(
            command(*arguments),
            stdin=far,
            stdout=far,
            stderr=far,
            env=env,
            cwd=folder,
            start_new_session=True,
            # Its own terminal, so that Ctrl-C is a signal.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 (one call)
        )
        os.close(far)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(LIMIT)
        os.close(self._fd)

    @property
    def plain(self) -> str:
        """What was written, without colours and other control sequences."""
        return ANSI.sub("", self.text).replace("\r\n", "\n")

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def read_until(self, wanted: str, times: int = 1) -> None:
        """Read on until `wanted` was written so often."""
        deadline = time.monotonic() + LIMIT
        while self.plain.count(wanted) < times:
            assert self._read(deadline) or self.plain.count(wanted) >= times, self.plain

    def ended(self) -> int:
        """Read to the end; the exit status."""
        deadline = time.monotonic() + LIMIT
        while self._read(deadline):
            pass
        return self.process.wait(LIMIT)

    def _read(self, deadline: float) -> bool:
        """Wait for more and take it; whether there was any before the end."""
        left = deadline - time.monotonic()
        assert left > 0, self.plain
        assert select.select([self._fd], [], [], left)[0], self.plain
        try:
            read = os.read(self._fd, 65536)
        except OSError:  # the far end is closed
            return False
        self.text += self._decoder.decode(read)  # a piece may end within a character
        return bool(read)
