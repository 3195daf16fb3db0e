"""Capped exponential back-off with full jitter: number of attempts and pauses between them. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Number of attempts, and the pause before each.

    Attributes:
        base, cap: seconds; the delay before attempt n+1 is uniform in [0, min(cap, base * 2**n)], which
            spreads the callers that one restart has cut off ("full jitter").
    """

    attempts: int = 5
    base: float = 0.1
    cap: float = 2.0
    uniform: Callable[[float, float], float] = random.uniform

    def delay(self, failures: int) -> float:
        """Seconds to wait after that many failures in a row (1 or more)."""
        ceiling = min(self.cap, self.base * 2 ** min(failures - 1, 30))
        return self.uniform(0.0, ceiling)


class Backoff:
    """The pauses of one loop that retries without end, as `RetryPolicy.delay` has them.

    Args:
        base: seconds of the first pause at most; each further one may be twice as long.
        cap: seconds of any pause at most.
    """

    def __init__(self, base: float, cap: float) -> None:
        self._policy = RetryPolicy(base=base, cap=cap)
        self._failures = 0

    def next(self) -> float:
        """Seconds to wait now."""
        self._failures += 1
        return self._policy.delay(self._failures)

    def reset(self) -> None:
        """Begin with short pauses again: the last attempt succeeded."""
        self._failures = 0
