"""How many open tasks one agent may have: a caller that gives more is refused, before anything is stored.

The database is asked seldom: after a count, half of what is free may be given before the next one.
"""

from __future__ import annotations

from collections.abc import Callable

from postroom.errors import Refused
from postroom.store.agents import Agent
from postroom.store.database import Database


class OpenTasks:
    """The bound of open tasks of each agent of an organisation.

    Agents delegate to one another on the bus, where the inbox of each pair is bounded; a count has their tasks, too.

    Args:
        most: 0 for no bound.
        refused: called when a task is.
    """

    def __init__(
        self, database: Database, most: int = 0, refused: Callable[[], None] = lambda: None
    ) -> None:
        self._database = database
        self._most = most
        self._refused = refused
        self._free: dict[str, int] = {}

    async def check(self, worker: Agent) -> None:
        """Count a task that is about to be given to `worker`.

        Raises:
            Refused: it has as many as it may have.
        """
        if not self._most:
            return
        free = self._free.get(worker.uid, 0)
        if free < 1:
            counts = await self._database.read(lambda store: store.tasks.counts())
            left = self._most - counts.get(worker.uid, 0)
            if left < 1:
                self._refused()
                raise Refused(
                    f"@{worker.nick} has {self._most} open tasks, the most that one agent can have",
                    remedy=f"wait until some end, or cancel some: postroom task list --worker @{worker.nick}",
                )
            free = (left + 1) // 2
        self._free[worker.uid] = free - 1
