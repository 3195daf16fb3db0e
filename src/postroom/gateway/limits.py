"""What one worker may do at its door: a rate limit over all its connections, and violations.

Violations are counted, reported, and ended when there are too many.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from postroom.gateway.port import Rates
from postroom.protocol.rates import Rate

BURST = 10.0
"""Seconds' worth that may come at once."""

FLOOD_AFTER = 10.0
"""Seconds of flood before the gateway warns of it."""

PAUSE = 1.0
"""Seconds without excess after which a flood is over."""

SMALL = 1024
"""Bytes: a piece of an HTTP body counts if it has fewer; large ones are cheap."""

_HOUR = 3600.0

WINDOW = 600.0
"""Seconds that a violation counts."""

QUIET = 60.0
"""Seconds between two alerts about one worker."""

VIOLATION = "worker-violation"
CUT_OFF = "worker-cut-off"
FLOOD = "worker-flood"
"""Kinds of the alerts."""


class RateLimit:
    """The rates of a door and what is left of them.

    Attributes:
        frames, bytes: that came since the door was opened.
    """

    def __init__(self, rates: Rates, clock: Callable[[], float] = time.monotonic) -> None:
        now = clock()
        self.frames = self.bytes = 0
        self._clock = clock
        self._messages = Rate(rates.messages, rates.messages * BURST, now)
        self._bytes = Rate(rates.bytes, rates.bytes * BURST, now)
        self._records = Rate(rates.records, rates.records * BURST, now)
        self._stored = Rate(rates.stored_bytes / _HOUR, rates.stored_bytes, now)
        self._since = self._until = self._counted = now - FLOOD_AFTER

    def take(self, messages: int, size: int) -> float:
        """Count what came; return the seconds to read nothing more."""
        now = self._clock()
        self.frames += messages
        self.bytes += size
        wait = self._messages.take(messages, now)
        if (of_bytes := self._bytes.take(size, now)) > wait:
            wait = of_bytes
        if (of_records := self._records.take(0, now)) > wait:
            wait = of_records
        if wait:
            self._owe(wait, now)
        return wait

    def _owe(self, wait: float, now: float) -> None:
        if now > self._until + PAUSE:
            self._since = now
        self._until = max(self._until, now + wait)

    def piece(self, size: int) -> float:
        """Count a piece of HTTP; return the seconds to read nothing more."""
        return self.take(1, 0) if size < SMALL else 0.0

    def debt(self) -> float:
        """Seconds until what came is paid for."""
        return max(0.0, self._until - self._clock())

    def flooded(self) -> bool:
        """Whether to warn of a flood now: it lasts, and the last warning is a second old."""
        now = self._clock()
        if self._until < now or now - self._since < FLOOD_AFTER or now - self._counted < 1.0:
            return False
        self._counted = now
        return True

    def store(self, size: int) -> bool:
        """Whether a stream may store `size` bytes more; if so, count them and the record."""
        now = self._clock()
        if not self._stored.covers(size, now):
            return False
        if wait := self._records.take(1, now):
            self._owe(wait, now)
        return True


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
