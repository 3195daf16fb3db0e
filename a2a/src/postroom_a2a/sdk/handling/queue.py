"""The event queue that an agent's executor is given: what is put into it has been stored and told on return."""

from __future__ import annotations

import asyncio
from typing import Protocol

from a2a.server.events.event_queue import EventQueue

from postroom_a2a.sdk.handling.changes import Event


class Recorder(Protocol):
    """Where the events go."""

    async def room(self) -> None:
        """Return when every subscriber has room for an event."""

    async def record(self, event: Event) -> None:
        """Store an event and tell it to the subscribers."""


class TaskQueue(EventQueue):
    """Hands each event on, one after the other, as soon as the slowest subscriber has room for it.

    Args:
        recorder: of the one task.
        patient: whether to wait for slow subscribers; a cancellation does not.
    """

    def __init__(self, recorder: Recorder, *, patient: bool = True) -> None:
        self._recorder = recorder
        self._patient = patient
        self._turn = asyncio.Lock()

    async def enqueue_event(self, event: Event) -> None:
        """Record an event; one that may not come now is told to the subscribers as an error, as by the SDK."""
        async with self._turn:
            if self._patient:
                await self._recorder.room()
            await self._recorder.record(event)
