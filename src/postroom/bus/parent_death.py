"""Making a child die with its parent, even when the parent is killed (Linux)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(signum: signal.Signals = signal.SIGTERM) -> Callable[[], None] | None:
    """A `preexec_fn` that has the kernel send `signum` when the parent ends; None on systems without it.

    The signal is tied to the thread that starts the child: it also comes when that thread ends. So start the child from
    the thread of the event loop.
    """
    libc, parent = _LIBC, os.getpid()
    if libc is None:
        return None

    def arm() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(signum), 0, 0, 0)
        if os.getppid() != parent:  # the parent ended before the kernel knew
            os._exit(1)

    return arm
