"""A limit on each caller's requests at a time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager


class ConcurrencyLimit:
    """Counts each caller's running requests.

    A caller over the limit gets an error instead of a place in a queue: a queue takes memory, and hides the overload.

    Args:
        refusal: makes that error.
    """

    def __init__(self, at_most: int, refusal: Callable[[], Exception]) -> None:
        self._at_most = at_most
        self._refusal = refusal
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def slot(self, caller: str = "") -> Generator[None]:
        """Count one request while the block runs; raises the refusal over the limit."""
        if self._under_way[caller] >= self._at_most:
            raise self._refusal()
        self._under_way[caller] += 1
        try:
            yield
        finally:
            self._under_way[caller] -= 1
            if not self._under_way[caller]:
                del self._under_way[caller]
