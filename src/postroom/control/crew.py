"""Background tasks: the death of one is the death of what they serve."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Coroutine
from typing import Any


class Crew:
    """The background tasks of the control plane; the death of one ends the post room.

    What `start` began is cancelled at the end; tasks of `group` are waited for.
    """

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.group = group
        self.tasks: list[asyncio.Task[Any]] = []

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Begin `work`, which runs until it is cancelled."""
        self.tasks.append(self.group.create_task(work, name=name))


@contextlib.asynccontextmanager
async def hire() -> AsyncGenerator[Crew]:
    """A crew for as long as the context lasts."""
    async with asyncio.TaskGroup() as group:
        crew = Crew(group)
        try:
            yield crew
        finally:
            for task in crew.tasks:
                task.cancel()
