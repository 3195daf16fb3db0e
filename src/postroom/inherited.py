"""What a process gets from the one that starts it and must not pass on: ignored signals, and missing descriptors."""

from __future__ import annotations

import os
import signal
from types import FrameType

_STAY = frozenset(
    {
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGTSTP,
        signal.SIGUSR1,
        signal.SIGUSR2,
    }
)
"""Signals that somebody sends: who starts us may want that they do nothing here, as nohup does."""

_OF_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""Python ignores them itself, and `subprocess` sets them back in each child."""


def settle() -> None:
    """Let children have every signal by default and none blocked, and open what is closed of descriptors 0 to 2.

    What was ignored still does nothing here. But execve(2) passes on an ignored signal and resets one with a handler,
    so a handler that does nothing is set in its place. Call it first of all in the main thread: a file that is opened
    before would take the place of a closed standard input, and children would read it.
    """
    for number in range(3):
        _open(number)
    for number in signal.valid_signals() - _OF_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _nothing if number in _STAY else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Do nothing."""


def _open(number: int) -> None:
    """Open /dev/null as descriptor `number` if that is closed and all below are open."""
    try:
        os.fstat(number)
    except OSError:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest one that is free
