"""Workers that could not be started because no wall held: tried again, since that may have been for a moment only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from postroom.observe.supervision import guarded
from postroom_a2a.retry import Backoff

FIRST, LAST = 10.0, 600.0
"""Seconds of the first pause and of any later one, at most: each trial starts a real sandbox."""


class Unwalled:
    """The workers of an organisation that wait for a wall.

    Args:
        start: starts the worker with that uid; False if there is still no wall.
    """

    def __init__(self, tasks: asyncio.TaskGroup, start: Callable[[str], Awaitable[bool]]) -> None:
        self._tasks = tasks
        self._start = start
        self._uids: set[str] = set()
        self._running: asyncio.Task[None] | None = None

    def add(self, uid: str) -> None:
        """Try that worker again, with longer and longer pauses."""
        self._uids.add(uid)
        if self._running is None or self._running.done():
            self._running = self._tasks.create_task(self._run(), name="workers without a wall")

    def close(self) -> None:
        """Try none again."""
        self._uids.clear()
        if self._running is not None:
            self._running.cancel()

    async def _run(self) -> None:
        pauses = Backoff(FIRST, LAST)
        while self._uids:
            await asyncio.sleep(pauses.next())
            for uid in sorted(self._uids):
                with guarded(f"worker {uid} was not tried again"):
                    if await self._start(uid):
                        self._uids.discard(uid)
