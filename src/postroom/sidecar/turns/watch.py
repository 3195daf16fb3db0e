"""Watching a turn: an agent that says nothing, and a turn that takes too long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from postroom.protocol.events import EventKind
from postroom.sidecar.turns.desk import Desk
from postroom.sidecar.turns.turn import Turn


class Watch:
    """Watches one turn until it is cancelled; a turn that waits for a person is not stalled.

    Args:
        stop: ends the turn for a reason.
    """

    def __init__(self, turn: Turn, desk: Desk, stop: Callable[[str], None]) -> None:
        self._turn = turn
        self._desk = desk
        self._stop = stop
        self._stalled = False

    async def run(self) -> None:
        """Watch."""
        try:
            while True:
                await self._pause()
                self._look()
        finally:
            if self._stalled:
                self._desk.status.stalled("")

    def over(self) -> None:
        """The turn has ended, and with it the silence."""
        if self._stalled:
            self._goes_on()

    async def _pause(self) -> None:
        """Wait until something may be due."""
        turn, limits, now = self._turn, self._desk.limits, _now()
        due = [now + 3600.0]
        if not turn.asking:
            if limits.stall_after and not self._stalled:
                due.append(turn.last + limits.stall_after)
            if limits.turn_limit and not turn.stop:
                due.append(turn.began + turn.waited + limits.turn_limit)
        if self._stalled:
            due.append(now + 0.2)  # an event ends it; the agent's own clock does not matter then
        before = turn.asking
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(due)):
                await turn.changed.wait()
        turn.changed.clear()
        if before:
            turn.waited += _now() - now
            turn.last = max(turn.last, _now())

    def _look(self) -> None:
        turn, limits, now = self._turn, self._desk.limits, _now()
        if turn.asking:
            return
        silent = now - turn.last
        if self._stalled and silent < limits.stall_after:
            self._goes_on()
        elif limits.stall_after and silent >= limits.stall_after and not self._stalled:
            self._stalls(silent)
        over = limits.turn_limit and now - turn.began - turn.waited >= limits.turn_limit
        if over and not turn.stop:
            self._stop(f"the turn took longer than {limits.turn_limit:g} s")

    def _stalls(self, silent: float) -> None:
        self._stalled = True
        said = f"no sign of the agent for {silent:.0f} s"
        self._desk.status.stalled(said)
        self._desk.report(EventKind.STALLED, {"seconds": round(silent, 1)}, turn=self._turn)

    def _goes_on(self) -> None:
        self._stalled = False
        self._desk.status.stalled("")
        self._desk.report(EventKind.STALLED, {"seconds": 0}, turn=self._turn)


def _now() -> float:
    return asyncio.get_running_loop().time()
