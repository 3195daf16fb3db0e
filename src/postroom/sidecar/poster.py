"""Posts an agent's events to the control plane, in their order, for as long as that takes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from postroom.errors import PostroomError
from postroom.observe import get_logger
from postroom.sidecar.bus import BACKOFF
from postroom.sidecar.control_client import ControlClient, EventsRefused
from postroom.sidecar.spool import Batch, Spool

PAUSE = 0.1
"""Seconds between two posts: the first event goes at once, those that follow it together."""

_log = get_logger(__name__)


class EventPoster:
    """Takes the events of one worker and posts them."""

    def __init__(self, spool: Spool, control: ControlClient, worker: str) -> None:
        self._spool = spool
        self._control = control
        self._worker = worker
        self._more = asyncio.Event()
        self._empty = asyncio.Event()
        if spool:
            self._more.set()
        else:
            self._empty.set()

    def record(self, event: Mapping[str, Any]) -> None:
        """Take an event; nothing waits for it."""
        self._spool.append(event)
        self._empty.clear()
        self._more.set()

    async def run(self) -> None:
        """Post until cancelled."""
        failures, most = 0, 0
        while True:
            await self._more.wait()
            batch = self._next(most)
            if batch is None:
                self._more.clear()
                self._empty.set()
                continue
            try:
                following = await self._control.post_batch(
                    self._worker, batch.run, batch.first, batch.lines
                )
            except EventsRefused as error:
                most = self._refused(batch, error)
                continue
            except PostroomError as error:
                failures += 1
                if failures == 1:
                    _log.warning("events wait: %s", error)
                await asyncio.sleep(BACKOFF.delay(failures))
                continue
            self._spool.taken(batch, following or batch.first + len(batch.lines))
            failures, most = 0, 0
            await asyncio.sleep(PAUSE)

    async def drained(self, timeout: float) -> None:
        """Wait at most `timeout` seconds until all is posted; the rest waits for the next start."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._empty.wait()
        self._spool.close()

    def _next(self, most: int) -> Batch | None:
        batch = self._spool.batch()
        if batch is None or not most:
            return batch
        return Batch(batch.run, batch.first, batch.lines[:most])

    def _refused(self, batch: Batch, error: EventsRefused) -> int:
        """Find the event that is refused by halves, and leave it out; returns the size of the next batch."""
        if len(batch.lines) > 1:
            return max(1, len(batch.lines) // 2)
        _log.error("an event was refused, and is left out: %s: %s", error, batch.lines[0][:500])
        self._spool.taken(batch, batch.first + 1)
        return 0
