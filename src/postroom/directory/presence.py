"""Who is there: workers by their own status messages, and who calls the API by these calls.

Nobody sends a beat for people, and for agents that Postroom does not run, so a call is the sign of life. It is noted in
memory, and in the directory at most once a minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

from postroom.bus.port import BusAdmin, Message, MessageBusProvider, Subscription
from postroom.directory.agents import Directory
from postroom.errors import ProtocolViolation
from postroom.observe import get_logger
from postroom.protocol.presence import ONLINE, Presence
from postroom.protocol.streams import BY_NAME
from postroom.store.database import Database

log = get_logger(__name__)

FRESH = BY_NAME["PRESENCE"].max_age
"""Seconds for which a status message counts."""

PAUSE = 60.0
"""Seconds between two notes of one agent's calls in the directory."""

CALL_LASTS = 90.0
"""Seconds after its last call for which an agent counts as there: more than a pause between two polls."""


class PresenceBoard:
    """The last status message of each worker.

    Args:
        bus: connection to core, where every worker's status arrives.
        admin: reads the status messages from before this process started.
        changed: called after each message that reports another state or trouble than the one before.
    """

    def __init__(
        self,
        bus: MessageBusProvider,
        admin: BusAdmin,
        clock: Callable[[], float] = time.time,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        self._bus = bus
        self._admin = admin
        self._clock = clock
        self._changed = changed
        self._last: dict[str, Presence] = {}
        self._ran: dict[str, float] = {}
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Begin to listen, then read what PRESENCE still holds."""
        self._subscription = await self._bus.subscribe("worker.*.status", self._heard)
        async for message in self._admin.replay("PRESENCE"):
            await self._heard(message)

    async def close(self) -> None:
        """Stop listening."""
        if self._subscription is not None:
            await self._subscription.close()

    async def _heard(self, message: Message) -> None:
        try:
            said = Presence.decode(message.payload)
        except ProtocolViolation as error:
            log.warning("status of %s: %s", message.sender_uid, error)
            return
        # A time in the future would count for ever, and hide what the worker reports after a restart.
        said = replace(said, at=min(said.at, self._clock()))
        before = self._last.get(message.sender_uid)
        if before is None or said.at >= before.at:
            self._last[message.sender_uid] = said
            if said.state in ONLINE:
                self._ran[message.sender_uid] = said.at
            if before is None or _differs(said, before):
                self._changed()

    def of(self, uid: str) -> Presence | None:
        """The last status message of worker `uid`, however old; None if there was none."""
        return self._last.get(uid)

    def ran_at(self, uid: str) -> float:
        """When worker `uid` last reported that its agent runs, seconds since the epoch; 0 for never."""
        return self._ran.get(uid, 0.0)

    def forget(self, uid: str) -> None:
        """Drop the messages of a retired worker."""
        self._last.pop(uid, None)
        self._ran.pop(uid, None)


def _differs(said: Presence, before: Presence) -> bool:
    return (said.state, said.started_at, said.trouble, said.until) != (
        before.state,
        before.started_at,
        before.trouble,
        before.until,
    )


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
        return uid in self._waiting or self._clock() - self._called.get(uid, 0.0) < CALL_LASTS

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
