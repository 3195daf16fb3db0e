"""How fast something may come: GCRA in its form as a leaky bucket (ITU-T I.371, annex A). Pure: the time comes in.

One `Rate` has two numbers as its state, so there may be one for each caller. `covers` refuses what comes too fast, as
the API does. `take` lets it come and says how long to pause, as a worker's door does.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_ROUNDING = 1e-6
"""Of one unit: what the arithmetic of seconds may lack. Who keeps exactly to the rate is not refused for it."""


class Rate:
    """What may come: `burst` units at once, and `rate` a second; 0 for no limit.

    In any span of t seconds `covers` takes at most `burst + rate * t` units.
    """

    __slots__ = ("_at", "_level", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst = rate, burst
        self._level, self._at = burst, now

    def level(self, now: float) -> float:
        """The units that may come now."""
        self._level = min(self.burst, self._level + (now - self._at) * self.rate)
        self._at = now
        return self._level

    def take(self, amount: float, now: float) -> float:
        """Take `amount`, if need be on credit; seconds until the debt is paid."""
        if not self.rate:
            return 0.0
        level = self._level + (now - self._at) * self.rate
        self._level = level = min(self.burst, level) - amount
        self._at = now
        return -level / self.rate if level < 0.0 else 0.0

    def covers(self, amount: float, now: float) -> bool:
        """Take `amount` if so many units are left; otherwise nothing is taken."""
        if not self.rate:
            return True
        if self.level(now) + _ROUNDING < amount:
            return False
        self._level -= amount
        return True

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` would be covered."""
        if not self.rate:
            return 0.0
        return max(0.0, (amount - self.level(now)) / self.rate)

    def full(self, now: float) -> bool:
        """Whether it is as if nothing had ever come."""
        return not self.rate or self.level(now) >= self.burst


class Rates(Generic[K]):
    """A rate for each of at most `most` callers; those idle longest are forgotten."""

    def __init__(self, rate: float, burst: float, most: int) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._kept: dict[K, Rate] = {}

    def has(self, caller: K) -> bool:
        """Whether a caller has come, and is not forgotten."""
        return caller in self._kept

    def of(self, caller: K, now: float) -> Rate:
        """The rate of a caller, who is the last to be forgotten now."""
        found = self._kept.pop(caller, None) or Rate(self._rate, self._burst, now)
        self._kept[caller] = found
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return found
