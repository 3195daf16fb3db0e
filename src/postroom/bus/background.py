"""Background tasks of a bus: a failure is reported, and all end with the bus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Report = Callable[[Exception], None]


class Supervisor:
    """Keeps tasks, reports one that fails, ends all of them.

    Args:
        report: gets every exception that a task ended with.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception):
            self._report(error)

    async def stop(self, *tasks: asyncio.Task[None], timeout: float) -> None:
        """Cancel `tasks`, or all if none is named, and wait at most `timeout` seconds for their end."""
        current = asyncio.current_task()
        ending = {task for task in (tasks or self._tasks) if task is not current}
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending, timeout=timeout)
