"""Violations of one worker: counted, reported, and ended when there are too many."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW = 600.0
"""Seconds that a violation counts."""

QUIET = 60.0
"""Seconds between two alerts about one worker."""

VIOLATION = "worker-violation"
CUT_OFF = "worker-cut-off"
FLOOD = "worker-flood"
"""Kinds of the alerts."""


class Violations:
    """The violations of one worker since its door was opened.

    Args:
        most: violations within `WINDOW` that cut it off.
        alert: gets the kind and the text of an alert.
        cut: ends every connection of the worker.
    """

    def __init__(
        self,
        most: int,
        alert: Callable[[str, str], None],
        cut: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.barred = False
        self.count = 0
        self._most = most
        self._alert = alert
        self._cut = cut
        self._clock = clock
        self._times: deque[float] = deque(maxlen=max(most, 1))
        self._told = self._warned = float("-inf")

    def warn(self, reason: str) -> None:
        """Raise an alert that the gateway slows the worker down. The worker breaks no rule, so nothing is counted."""
        now = self._clock()
        if now - self._warned >= QUIET:
            self._warned = now
            self._alert(FLOOD, f"is held back at its door: {reason}")

    def offend(self, reason: str) -> None:
        """Count a violation."""
        if self.barred:
            return
        now = self._clock()
        self.count += 1
        self._times.append(now)
        if now - self._told >= QUIET:
            self._told = now
            self._alert(VIOLATION, f"was refused at its door: {reason}")
        if len(self._times) == self._most and now - self._times[0] <= WINDOW:
            self.barred = True
            self._alert(
                CUT_OFF,
                f"is cut off after {self._most} violations within ten minutes, the last: {reason}; "
                "see postroom audit --denied; postroom restart lets it in again",
            )
            self._cut()
