"""What `/readyz` tells of the parts that requests need."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from postroom.control.parts import Parts
from postroom.errors import PostroomError
from postroom.store.database import Store

BUS, DATABASE = "bus", "database"


class Readiness:
    """Looks after the bus and the database of an organisation, for anybody who asks, so seldom and not for long."""

    fresh: ClassVar[float] = 1.0
    """Seconds for which a look counts, however many ask."""

    patience: ClassVar[float] = 3.0
    """Seconds that the database has to answer."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._turn = asyncio.Lock()
        self._looked = float("-inf")
        self._database = True

    async def away(self) -> list[str]:
        """What does not answer now."""
        found = [] if self._parts.bus.statistics().connected else [BUS]
        loop = asyncio.get_running_loop()
        async with self._turn:
            if loop.time() - self._looked >= self.fresh:
                self._database = await self._answers()
                self._looked = loop.time()
        return found if self._database else [*found, DATABASE]

    async def _answers(self) -> bool:
        """Whether the database answers; tasks may lie in another one."""
        owner = self._parts.owner.uid

        def look(store: Store) -> None:
            store.agents.agent_by_uid(owner)
            store.tasks.head_by_id("")

        try:
            async with asyncio.timeout(self.patience):
                await self._parts.database.point(look)
        except (PostroomError, TimeoutError):
            return False
        return True
