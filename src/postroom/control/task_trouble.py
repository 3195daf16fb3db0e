"""Reports to those who wait for a task what holds it up: the bus, or its worker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from postroom.bus.port import BusStatistics
from postroom.control.sse import Numbered, Show
from postroom.observe.supervision import well
from postroom.projection.changes import Change, Changes
from postroom.protocol import shapes
from postroom.tasks.views import Blocker, Known, blocked
from postroom_a2a.task_state import TaskState
from postroom_a2a.times import format_time

CHECK_INTERVAL = 1.0
"""Seconds between two checks of the connection; a shorter outage is not reported."""

BUS_AWAY = "the bus does not answer"


class Connected(Protocol):
    """A connection that reports whether it is up."""

    def statistics(self) -> BusStatistics:
        """The state of the connection."""
        ...


async def watch_bus(bus: Connected, changes: Changes) -> None:
    """Publish a change when the bus has gone and when it is back, until cancelled.

    The count of connections shows an outage between two checks, too: a reader may have seen during it that the bus was
    away.
    """
    seen = _state(bus)
    while True:
        if (now := _state(bus)) != seen:
            seen = now
            changes.publish([Change("bus", 0)])
        well()
        await asyncio.sleep(CHECK_INTERVAL)


def _state(bus: Connected) -> tuple[bool, int]:
    found = bus.statistics()
    return found.connected, found.reconnects


@dataclass(frozen=True, slots=True)
class TaskTrouble:
    """What holds a task up, "" once nothing does; `worker` is the nick of the one that it waits for."""

    task: str
    text: str
    worker: str
    at: float
    seq: int = 0

    def as_json(self) -> shapes.Trouble:
        """Its form in the API."""
        return {
            "task": self.task,
            "text": self.text,
            "worker": self.worker,
            "at": format_time(self.at),
        }


def troubles(blocker: Blocker, bus: Connected, known: Callable[[], Awaitable[Known]]) -> Show:
    """Shows what holds a task up whenever that has changed.

    Args:
        known: returns the task as it is now.
    """
    said = ""

    async def show(change: Change) -> tuple[str, Numbered] | None:
        nonlocal said
        if change.kind not in ("open", "worker", "bus"):
            return None
        task = await known()
        row, worker = task.row, task.parties[task.row.worker]
        text, why = "", blocker(worker.uid)
        if not bus.statistics().connected:
            text = f"{BUS_AWAY}: it goes on when the bus is back"
        elif why and not (row.final or TaskState(row.state).interrupted):
            text = blocked(worker.nick or worker.uid, why)
        if text == said:
            return None
        said = text
        return "trouble", TaskTrouble(row.id, text, worker.nick if why else "", time.time())

    return show
