"""Waits for the end of a process that is not our child."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from types import TracebackType
from typing import Self

LOOK_AGAIN = 0.05


class Process:
    """The process `pid`, held by a descriptor where the system has such (Linux 5.3, pidfd_open(2))."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._descriptor = -1
        with contextlib.suppress(AttributeError, OSError):  # no such call here, or it has ended
            self._descriptor = os.pidfd_open(pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def wait(self, timeout: float) -> bool:
        """Whether it ended within `timeout` seconds."""
        if self._descriptor < 0:
            return self._watch(timeout)
        with selectors.DefaultSelector() as selector:
            selector.register(self._descriptor, selectors.EVENT_READ)
            return bool(selector.select(timeout))

    def _watch(self, timeout: float) -> bool:
        """The same by looking again and again: other systems offer no event for a foreign process."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                os.kill(self._pid, 0)
            except ProcessLookupError:
                return True
            time.sleep(LOOK_AGAIN)
        return False
