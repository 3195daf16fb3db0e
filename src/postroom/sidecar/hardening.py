"""Keeps the sidecar's memory and environment from other processes of the same user.

Without it an agent reads the token out of `/proc/<sidecar>/environ` or its memory. It is a courtesy to the
transcript and no wall: sidecar and agent are one trust domain.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys

from postroom.errors import EnvironmentFault

_PR_SET_DUMPABLE = 4  # prctl(2)


def harden() -> None:
    """Forbid tracing, reading through procfs, and core files of this process; what it starts is not affected.

    Raises:
        EnvironmentFault: the kernel refused.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if sys.platform != "linux":
        return  # macOS asks for an entitlement before one process may read another
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        reason = os.strerror(ctypes.get_errno())
        raise EnvironmentFault(f"the sidecar cannot protect its memory: {reason}")
