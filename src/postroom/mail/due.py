"""Messages that become due at an instant: they expire, or nobody has taken them.

A watch sleeps until the earliest instant, or until a new message has an earlier one. It never polls, and asks SQL once
for all that came within a moment.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from postroom.bus.port import MessageBusProvider
from postroom.errors import PostroomError
from postroom.mail.clerk import Clerk
from postroom.observe import get_logger
from postroom.projection.changes import MAIL, Change, Changes, Signal
from postroom.projection.submit import append_alert
from postroom.protocol.alerts import Alert
from postroom.protocol.receipts import Reason, State
from postroom.store.alerts import STALE
from postroom.store.database import Database, Store
from postroom.store.messages import MessageRow
from postroom_a2a.retry import RetryPolicy

log = get_logger(__name__)

LONGEST_SLEEP = 60.0
"""The longest sleep in seconds, so that a changed clock or a machine that slept is noticed."""

SHORTEST_SLEEP = 0.01

GATHER = 0.25
"""Seconds from new messages to the query, so that a burst costs one query."""

RETRY = 2.0
"""Seconds until a failed attempt is repeated."""

REPEAT = 30.0
"""Seconds after which an action is repeated whose effect SQL does not show."""


@dataclass(frozen=True, slots=True)
class Due:
    """The messages that are due now, and the instant of the next one (None: nothing is waiting)."""

    now: Sequence[MessageRow]
    next_at: float | None


class Job(Protocol):
    """The query and the action of a watch."""

    async def find(self, now: float) -> Due:
        """The messages that are due at `now`."""

    def due_at(self, message: MessageRow) -> float | None:
        """The earliest instant at which a new message may be due; None for never."""

    async def act(self, message: MessageRow) -> None:
        """Append to the log what follows for one due message."""


class Watch:
    """Does a job for each message when it is due."""

    def __init__(self, job: Job, changes: Changes, clock: Callable[[], float] = time.time) -> None:
        self._job = job
        self._changes = changes
        self._clock = clock
        # Recent actions: until they are folded, SQL still shows their messages as due.
        self._done: dict[int, float] = {}
        self._wakes = math.inf

    async def run(self) -> None:
        """Watch until cancelled or until the changes are closed."""
        with self._changes.listen(MAIL, limit=1, only=self._is_earlier) as listener:
            while True:
                self._wakes = math.inf
                pause = await self._step()
                self._wakes = self._clock() + pause
                heard = await listener.next(pause)
                if heard is Signal.CLOSED:
                    return
                if heard is not Signal.QUIET:
                    await asyncio.sleep(GATHER)

    def _is_earlier(self, change: Change) -> bool:
        """Whether a new message is due before the watch wakes; SQL may have been asked before it came."""
        at = self._job.due_at(change.row)
        return at is not None and at < self._wakes

    async def _step(self) -> float:
        try:
            return await self.step()
        except PostroomError as error:
            log.warning("what is due could not be done: %s", error)
            return RetryPolicy(base=RETRY, cap=RETRY).delay(1)

    async def step(self) -> float:
        """Act on all due messages; returns seconds until the next step."""
        now = self._clock()
        self._done = {seq: at for seq, at in self._done.items() if at > now - REPEAT}
        due = await self._job.find(now)
        new = [message for message in due.now if message.seq not in self._done]
        for message in new:
            await self._job.act(message)
            self._done[message.seq] = now
        if due.now:
            # The query may have a further page, and past actions should have been folded by then.
            return RETRY if not new else SHORTEST_SLEEP
        until = LONGEST_SLEEP if due.next_at is None else due.next_at - self._clock()
        return max(SHORTEST_SLEEP, min(until, LONGEST_SLEEP))


class Expiry:
    """The job that turns expired messages into dead(expired)."""

    def __init__(self, database: Database, clerk: Clerk) -> None:
        self._database = database
        self._clerk = clerk

    async def find(self, now: float) -> Due:
        """Open messages whose `expires_at` has passed."""
        return await self._database.read(partial(_expired, now=now))

    def due_at(self, message: MessageRow) -> float | None:
        """When it expires."""
        return message.expires_at or None

    async def act(self, message: MessageRow) -> None:
        """Append the receipt dead(expired)."""
        await self._clerk.report(message, State.DEAD, Reason.EXPIRED.value)


def _expired(store: Store, now: float) -> Due:
    return Due(store.pending.expired(now), store.pending.next_expiry(now))


class Stale:
    """The job that raises one alert for an agent that does not take its messages.

    Args:
        after: seconds in `accepted` that are too long.
    """

    def __init__(self, bus: MessageBusProvider, database: Database, after: float) -> None:
        self._bus = bus
        self._database = database
        self._after = after

    async def find(self, now: float) -> Due:
        """The first overdue message to each agent without such an alert."""
        return await self._database.read(partial(_untaken, now=now, limit=self._after))

    def due_at(self, message: MessageRow) -> float | None:
        """When it has been in `accepted` for too long."""
        return message.stored_at + self._after

    async def act(self, message: MessageRow) -> None:
        """Raise the alert."""
        text = await self._database.read(partial(_stale_text, message=message, limit=self._after))
        await append_alert(self._bus, Alert(STALE, text, message.recipient))


def _stale_text(store: Store, message: MessageRow, limit: float) -> str:
    waiting = store.pending.count_untaken(message.recipient)
    sender = store.agents.parties([message.sender])[message.sender]
    return (
        f"has not taken its messages for {limit:.0f} s: {waiting} wait,"
        f" the first from @{sender.nick or sender.uid}"
    )


def _untaken(store: Store, now: float, limit: float) -> Due:
    before = now - limit
    waiting = store.pending.untaken(before)
    first = {message.recipient: message for message in reversed(waiting)}
    following = store.pending.next_untaken(before)
    return Due(list(first.values()), None if following is None else following + limit)
