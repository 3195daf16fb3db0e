"""Presence of those who call the API: people, and agents that Postroom does not run.

Nobody sends a beat for them, so a call is the sign of life. It is noted in memory, and in the directory at most once a
minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from postroom.directory.agents import Directory
from postroom.store.database import Database

PAUSE = 60.0
"""Seconds between two notes of one agent's calls in the directory."""

FRESH = 90.0
"""Seconds after its last call for which an agent counts as there: more than a pause between two polls."""


class Callers:
    """When each of them has called last, and who has a call open that waits.

    Attributes:
        changed: called when somebody comes who was not there; set once there is a listener.
    """

    def __init__(
        self,
        database: Database,
        directory: Directory,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._directory = directory
        self.changed: Callable[[], None] = lambda: None
        self._clock = clock
        self._called: dict[str, float] = {}
        self._noted: dict[str, float] = {}
        self._before: dict[str, float] = {}
        self._waiting: dict[str, int] = {}

    async def open(self) -> None:
        """Read what an earlier process has noted."""
        agents = await self._directory.all()
        self._before = {agent.uid: agent.seen_at for agent in agents if agent.seen_at is not None}
        self._called = dict(self._before)
        self._noted = dict(self._before)

    def called(self, uid: str) -> None:
        """Somebody calls now."""
        came = not self.there(uid)
        self._called[uid] = self._clock()
        if came:
            self.changed()

    @contextmanager
    def waiting(self, uid: str) -> Generator[None]:
        """Somebody has a call open, and is there until it ends."""
        self._waiting[uid] = self._waiting.get(uid, 0) + 1
        try:
            yield
        finally:
            self._waiting[uid] -= 1
            if not self._waiting[uid]:
                del self._waiting[uid]
            self._called[uid] = self._clock()

    def there(self, uid: str) -> bool:
        """Whether that agent calls, or has called a moment ago."""
        return uid in self._waiting or self._clock() - self._called.get(uid, 0.0) < FRESH

    def seen_at(self, uid: str) -> float | None:
        """When that agent called last; None for never."""
        return self._clock() if uid in self._waiting else self._called.get(uid)

    def called_before(self, uid: str, since: float) -> bool:
        """Whether that agent may have called an earlier process at or after the instant `since`."""
        return since <= self._before.get(uid, -PAUSE) + PAUSE

    async def note(self, uid: str) -> None:
        """Note on disk that an agent calls now, unless that was done within a minute.

        Raises:
            StateUnwritable: the disk is full.
        """
        now = self._clock()
        if now - self._noted.get(uid, 0.0) < PAUSE:
            return
        await self._database.write(lambda store: store.agents.seen({uid: now}))
        self._noted[uid] = self._called[uid] = now

    async def flush(self) -> None:
        """Note all calls that are not noted yet; once in `PAUSE` seconds."""
        now = self._clock()
        late = dict.fromkeys(self._waiting, now) | {
            uid: at
            for uid, at in self._called.items()
            if at > self._noted.get(uid, 0.0) and uid not in self._waiting
        }
        if late:
            await self._database.write(lambda store: store.agents.seen(late))
            self._noted |= late

    def forget(self, uid: str) -> None:
        """Drop what is known of a removed agent."""
        for known in (self._called, self._noted, self._before):
            known.pop(uid, None)
