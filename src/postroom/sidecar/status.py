"""The worker's presence records, at each change and every few seconds, and its Agent Card."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from postroom.errors import PostroomError
from postroom.observe import get_logger
from postroom.protocol import subjects
from postroom.protocol.intervals import PRESENCE_BEAT
from postroom.protocol.limits import MAX_STATUS
from postroom.protocol.presence import Presence, WorkerState, last_words
from postroom.sidecar.bus import BusClient
from postroom_a2a.text import one_line

SHORTEST_INTERVAL = 0.1
"""Seconds between two records, as long as there were few of them lately."""

STEADY_INTERVAL = 1.0
"""Seconds between two records of a worker whose state changes all the time: each costs the bus two stored records."""

QUICK = 5
"""Changes in a row that are told at once."""

STRANGE_LIMIT = 60
"""Characters of an unreadable line in the detail."""

_log = get_logger(__name__)


class StatusReporter:
    """The worker's state, as the sidecar knows it and the agent says it.

    Args:
        waiting: the number of messages and tasks that the agent holds.
        unconfirmed: a sentence on those of them that were set aside, and their number.
    """

    def __init__(
        self,
        bus: BusClient,
        own: str,
        waiting: Callable[[], int],
        unconfirmed: Callable[[], tuple[str, int]] = lambda: ("", 0),
        now: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._subject = subjects.status(own)
        self._waiting = waiting
        self._unconfirmed = unconfirmed
        self._now = now
        self._started_at = now()
        self._fixed: WorkerState | None = WorkerState.STARTING
        self._detail = ""
        self._stderr: tuple[str, ...] = ()
        self._said = WorkerState.IDLE
        self._stalled = ""
        self._unreadable, self._strange = 0, ""
        self._trouble, self._until = "", 0.0
        self._changed = asyncio.Event()
        self._level = 0.0
        self.sandbox = ""
        self._told: Presence | None = None

    def running(self) -> None:
        """The agent has started: its work decides the state from now on."""
        self._said, self._stderr = WorkerState.IDLE, ()
        self._set(None, "")

    def fixed(self, state: WorkerState, detail: str = "", stderr: Iterable[str] = ()) -> None:
        """The agent does not run: `state` says why, `stderr` has its last lines."""
        self._stalled, self._stderr = "", last_words(stderr)
        self._unreadable, self._strange = 0, ""
        self._trouble, self._until = "", 0.0
        self._set(state, detail)

    def said(self, state: str, detail: str) -> None:
        """The agent said `working` or `idle`; that counts while it runs."""
        if self._fixed is None:
            self._said = WorkerState(state)
            self._set(None, detail)

    def stalled(self, detail: str) -> None:
        """The agent does not read its input; "" once it does again."""
        if detail != self._stalled:
            self._stalled = detail
            self.touch()

    def unreadable(self, line: str, why: str) -> None:
        """The agent printed a line that its adapter cannot read; `why` is like `no JSON`."""
        self._unreadable += 1
        lines = "1 line that is" if self._unreadable == 1 else f"{self._unreadable} lines that are"
        self._strange = f"printed {lines} {why}; last: {one_line(line, STRANGE_LIMIT)}"
        self._trouble = self._strange
        if self._unreadable.bit_count() == 1:
            self.touch()  # the next regular record counts the others: a program may print thousands

    def readable(self) -> None:
        """The agent printed a line that its adapter can read: what it could not is no longer its last word."""
        if self._trouble == self._strange:
            self._trouble = ""

    def troubled(self, text: str, wait: float = 0.0) -> None:
        """The agent met an error; "" once it goes on.

        Args:
            wait: seconds until it tries again, 0 where it does not say.
        """
        until = self._now() + wait if wait else 0.0
        said = one_line(text, MAX_STATUS), until
        if said != (self._trouble, self._until):
            self._trouble, self._until = said
            self.touch()

    def touch(self) -> None:
        """Publish the record soon: something in it has changed."""
        self._changed.set()

    def presence(self) -> Presence:
        """The present record."""
        return Presence(
            state=self._state(),
            at=self._now(),
            started_at=self._started_at,
            detail=self._shown(),
            sandbox=self.sandbox,
            waiting=self._waiting(),
            stderr=self._stderr,
            trouble=self._trouble,
            until=self._until,
        )

    async def run(self) -> None:
        """Publish until cancelled."""
        while True:
            self._changed.clear()
            await self.publish()
            pause = self._pause()
            await asyncio.sleep(pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(PRESENCE_BEAT - pause):
                    await self._differs()

    def _pause(self) -> float:
        """Seconds before the next record: a leaky bucket of `QUICK` records, which empties one a `STEADY_INTERVAL`."""
        now = asyncio.get_running_loop().time()
        self._level = max(self._level, now) + STEADY_INTERVAL
        return max(SHORTEST_INTERVAL, self._level - now - (QUICK - 1) * STEADY_INTERVAL)

    async def _differs(self) -> None:
        """Wait until there is something to tell: a state that came and went while no record could go out is not."""
        while True:
            await self._changed.wait()
            if self._told is None or replace(self.presence(), at=self._told.at) != self._told:
                return
            self._changed.clear()

    async def publish(self) -> None:
        """Publish the record once; without the bus only this record is lost."""
        self._told = told = self.presence()
        try:
            # Nothing depends on its confirmation: the next record says the same or more.
            await self._bus.publish(self._subject, told.encode(), confirm=False)
        except PostroomError as error:
            _log.info("a presence record was not published: %s", error)

    def _shown(self) -> str:
        if self._fixed is not None:
            return self._detail
        said = self._stalled or self._unconfirmed()[0] or self._detail
        return one_line("; ".join(filter(None, (said, self._strange))), MAX_STATUS)

    def _state(self) -> WorkerState:
        if self._fixed is not None:
            return self._fixed
        if self._stalled:
            return WorkerState.STALLED
        if self._waiting() > self._unconfirmed()[1]:
            return WorkerState.WORKING
        return self._said

    def _set(self, state: WorkerState | None, detail: str) -> None:
        self._fixed = state
        self._detail = one_line(detail, MAX_STATUS)
        self.touch()


class Announcer:
    """Announces one worker's Agent Card, {} for none, on `system.discovery.<own>`, at the start and after a change.

    The control plane made the card and checks the announcement.
    """

    def __init__(self, bus: BusClient, own: str, card: Mapping[str, Any]) -> None:
        self._bus = bus
        self._subject = subjects.discovery(own)
        self._announced = b""
        self.card = dict(card)

    async def run(self) -> None:
        """Announce until cancelled."""
        while True:
            await self.announce()
            await asyncio.sleep(PRESENCE_BEAT)

    async def announce(self) -> None:
        """Announce the card if it has changed; without the bus, later."""
        payload = json.dumps(self.card).encode() if self.card else b""
        if payload == self._announced:
            return
        try:
            await self._bus.publish(self._subject, payload, timeout=PRESENCE_BEAT)
        except PostroomError as error:
            _log.info("the card was not announced: %s", error)
            return
        self._announced = payload
