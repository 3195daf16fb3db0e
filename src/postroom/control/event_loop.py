"""The event loop of the control plane: uvloop where it is installed (`postroom[fast]`), else asyncio's own.

uvloop takes half of the processor time of asyncio's loop for each read, write and wake-up: a tenth of what a message
costs. It is no part of the base install, since it takes 14 MB.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

YOUNG = 5000
"""New objects after which Python's collector looks for cycles among them; its own 700 are what few requests make."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, on the fastest loop that is installed."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.run(main)
    _keep_descriptors()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def settle() -> None:
    """Let Python's collector pass over what is there now: modules and tables live as long as the process.

    It would look through all of them in the middle of the work, again and again.
    """
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])


def _keep_descriptors() -> None:
    """Keep the descriptors that this process was started with to itself.

    uvloop closes none in a child (no `close_fds`), and a sandbox must not get what is open here. Python opens its own
    so that no child has them (PEP 446).
    """
    for entry in list(Path("/dev/fd").iterdir()):
        with suppress(OSError):  # the folder's own, which is closed by now
            if int(entry.name) > 2:
                os.set_inheritable(int(entry.name), False)
