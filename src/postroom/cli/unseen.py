"""A line that a person types unseen, in a terminal that another part of the command reads."""

from __future__ import annotations

import termios
from collections.abc import Callable, Generator
from contextlib import contextmanager

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
