"""Several measurements of one thing: their middle, and how far they lie apart."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Least, median and greatest of `rounds` measurements."""

    least: float
    median: float
    greatest: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of `values`, of which there is at least one."""
        return cls(min(values), statistics.median(values), max(values), len(values))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of `values` that `share` (0 to 1) of them do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def paired(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """The ratio of each round: what disturbs the machine for longer than a round cancels out."""
    return [one / other for one, other in zip(above, below, strict=True)]
