"""That a worker has changed: for who is told each time, and for who waits for the next time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Changed:
    """Passes on that a worker has changed; there are workers before there is somebody to tell."""

    def __init__(self) -> None:
        self.tell: Callable[[], None] = lambda: None
        self._next = asyncio.Event()

    def __call__(self) -> None:
        """Something has changed."""
        self.tell()
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._next.wait()
