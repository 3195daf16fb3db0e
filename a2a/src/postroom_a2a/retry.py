"""How often a call is made again, and after which pauses: capped exponential backoff with full jitter. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long.

    Attributes:
        attempts: calls made in all.
        base, cap: seconds; the delay before attempt n+1 is uniform in [0, min(cap, base * 2**n)], which
            spreads the callers that one restart has cut off ("full jitter").
        uniform: source of the jitter.
    """

    attempts: int = 5
    base: float = 0.1
    cap: float = 2.0
    uniform: Callable[[float, float], float] = random.uniform

    def delay(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row (1 or more)."""
        ceiling = min(self.cap, self.base * 2 ** min(failures - 1, 30))
        return self.uniform(0.0, ceiling)
