"""How much each of many may cause within a window of time."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Quota:
    """Counts by key: at most `most` within `window` seconds, which begin with the first.

    Forgets everything at a restart, as what it bounds is bounded elsewhere, too.
    """

    most: float
    window: float
    _counts: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, key: str, now: float, amount: float = 1) -> bool:
        """Count `amount`; returns whether that is still within the bound."""
        while self._counts:  # the oldest window is the first
            first, (began, _) = next(iter(self._counts.items()))
            if now - began < self.window:
                break
            del self._counts[first]
        began, count = self._counts.get(key, (now, 0))
        self._counts[key] = began, count + amount
        return count + amount <= self.most

    def give_back(self, key: str, amount: float) -> None:
        """Take back what was counted, and caused nothing after all."""
        if key in self._counts:
            began, count = self._counts[key]
            self._counts[key] = began, max(0, count - amount)
