"""A limit on how much one caller has under way at a time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager


class ConcurrencyLimit:
    """Counts what is under way, for each caller separately.

    A caller over the limit is refused and does not wait: a queue would take memory for it, and hide that it asks too
    much.

    Args:
        refusal: makes the error that a caller over the limit gets.
    """

    def __init__(self, at_most: int, refusal: Callable[[], Exception]) -> None:
        self._at_most = at_most
        self._refusal = refusal
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def slot(self, caller: str = "") -> Generator[None]:
        """Count one piece of work while the block runs; raises the refusal if there are too many."""
        if self._under_way[caller] >= self._at_most:
            raise self._refusal()
        self._under_way[caller] += 1
        try:
            yield
        finally:
            self._under_way[caller] -= 1
            if not self._under_way[caller]:
                del self._under_way[caller]
