"""The event loop of the control plane: uvloop where it is installed (`postroom[fast]`), else asyncio's own.

uvloop takes half of the processor time of asyncio's loop for each read, write and wake-up: a tenth of what a message
costs. It is no part of the base install, since it takes 14 MB.

Everybody waits while one piece of work holds the loop, so how long that was is measured (`HELD`).
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import selectors
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

YOUNG = 5000
"""New objects after which Python's collector looks for cycles among them; its own 700 are what few requests make."""


WINDOW = 60.0
"""Seconds for which the longest hold is remembered at least; at most twice as long."""

BEAT = 0.01
"""Seconds between two looks at a loop that does not say when it waits."""


class Holds:
    """The longest time that the loop was held of late: that nothing else could happen in it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._until = self._clock() + WINDOW
        self._now = self._before = 0.0

    def note(self, seconds: float) -> None:
        """The loop was held that long."""
        if seconds > self._now:
            self._turn()
            self._now = max(self._now, seconds)

    @property
    def longest(self) -> float:
        """Seconds; of the last minute or two."""
        self._turn()
        return max(self._now, self._before)

    def _turn(self) -> None:
        """Begin another window where one is over."""
        late = self._clock() - self._until
        if late >= 0:
            self._before = self._now if late < WINDOW else 0.0
            self._now, self._until = 0.0, self._until + WINDOW * (1 + late // WINDOW)


HELD = Holds()
"""Those of this process."""


class _Watched(selectors.DefaultSelector):
    """Where the loop waits: what is between two waits holds it."""

    _left = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As the selector's; both ends of the wait are noted."""
        if self._left:
            HELD.note(time.monotonic() - self._left)
        found = super().select(timeout)
        self._left = time.monotonic()
        return found


def _beat(loop: asyncio.AbstractEventLoop, due: float) -> None:
    """Look how late this is, and come again."""
    now = loop.time()
    HELD.note(now - due)
    loop.call_later(BEAT, _beat, loop, now + BEAT)


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, on the fastest loop that is installed."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        with asyncio.Runner(loop_factory=_watched) as runner:
            return runner.run(main)
    _keep_descriptors()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        loop = runner.get_loop()
        _beat(loop, loop.time())
        return runner.run(main)


def _watched() -> asyncio.AbstractEventLoop:
    return asyncio.SelectorEventLoop(_Watched())


def settle() -> None:
    """The start is over: let Python's collector pass over what is there now, and count holds from here on.

    Modules and tables live as long as the process; it would look through all of them in the middle of the work.
    """
    asyncio.get_running_loop().call_soon(HELD.forget)  # not what is left of this piece of work
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
