"""What a person types in a terminal: a line that is edited, with history, while what comes waits; and one unseen."""

from __future__ import annotations

import os
import selectors
import sys
import termios
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Self

import click

_LOCAL = 3
"""Place of the local modes in what `tcgetattr` returns."""


@contextmanager
def unseen(
    descriptor: int, mark: str, ready: Callable[[], object] = lambda: None
) -> Generator[None]:
    """Print `mark` on standard error; what is typed in the block does not show, what was typed before it is dropped.

    Args:
        ready: called before the mark shows, so that who reads the terminal knows at once what the next line is.
    """
    before = termios.tcgetattr(descriptor)
    hidden = termios.tcgetattr(descriptor)
    hidden[_LOCAL] &= ~termios.ECHO
    # What was typed before the question is no answer to it.
    termios.tcsetattr(descriptor, termios.TCSAFLUSH, hidden)
    try:
        ready()
        click.echo(mark, nl=False, err=True)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        click.echo(err=True)


LONGEST = 4096
"""Bytes of a line, its end included, that a terminal keeps; it silently drops the rest (termios(3))."""

_LOCAL, _CHARACTERS = 3, 6
"""Places of the local modes and of the control characters in what `tcgetattr` returns."""

_ERASE = "\r\x1b[K"


class Prompt:
    """Waits for the first key of a line on the standard input, then reads that line. Use it in a `with` statement.

    Until a key is pressed the terminal shows nothing that is typed: the line that begins with it does.

    Args:
        mark: what stands before the typed line.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._input = sys.stdin.fileno()
        self._shown = False

    def __enter__(self) -> Self:
        import readline  # noqa: F401 (`input` edits lines with it)

        self._before = termios.tcgetattr(self._input)
        return self

    def __exit__(self, *_: object) -> None:
        self._erase()
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)

    def begun(self, other: int, timeout: float | None = None) -> bool | None:
        """Wait until a line is begun (True) or the descriptor `other` is readable (False); None after `timeout` s."""
        self._by_key(termios.ECHO)
        with selectors.DefaultSelector() as selector:
            selector.register(self._input, selectors.EVENT_READ, True)
            selector.register(other, selectors.EVENT_READ, False)
            ready = selector.select(0)
            if not ready:
                self._show()
                ready = selector.select(timeout)
        self._erase()
        return max((key.data for key, _ in ready), default=None)

    def line(self) -> str | None:
        """The line that is being typed; None for Ctrl-D."""
        self._by_key()
        try:
            return input(self._mark)
        except UnicodeDecodeError as error:
            return error.object.decode(error.encoding, "replace")
        except EOFError:
            self._shown = True
            return None
        except KeyboardInterrupt:
            print()
            raise

    def secret(self, mark: str) -> str:
        """The next line, typed unseen behind `mark` and not kept; "" for Ctrl-D."""
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)
        try:
            with unseen(self._input, mark):
                return os.read(self._input, LONGEST).decode(errors="replace")
        finally:
            self._by_key(termios.ECHO)  # what is typed until the next line begins is not lost

    def _by_key(self, without: int = 0) -> None:
        """Have each key at once, not a line at a time."""
        modes = termios.tcgetattr(self._input)
        modes[_LOCAL] = self._before[_LOCAL] & ~(termios.ICANON | without)
        modes[_CHARACTERS][termios.VMIN], modes[_CHARACTERS][termios.VTIME] = 1, 0
        termios.tcsetattr(self._input, termios.TCSADRAIN, modes)

    def _show(self) -> None:
        sys.stdout.write(self._mark)
        sys.stdout.flush()
        self._shown = True

    def _erase(self) -> None:
        if self._shown:
            sys.stdout.write(_ERASE)
            sys.stdout.flush()
        self._shown = False
