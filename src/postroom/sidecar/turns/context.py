"""What the turns of one worker have in common: its rules, its events, its approvals, and their bounds.

A turn's watchdog finds an agent that says nothing, and a turn that takes too long. What a coding agent has used, and
the bound that its template sets, survives restarts of everything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from typing import Any

from postroom.protocol.alerts import RaiseAlert
from postroom.protocol.events import EventKind, cut
from postroom.sidecar.status import StatusReporter
from postroom.sidecar.turns.control import ControlChannel
from postroom.sidecar.turns.home import StateFile
from postroom.sidecar.turns.policy import Approvals
from postroom.sidecar.turns.prompts import Base
from postroom.sidecar.turns.turn import Turn


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a turn.

    Attributes:
        stall_after: seconds without an event after which it counts as stalled, 0 for never.
        turn_limit: seconds that it may take, without those in which it waits for people; 0 for no limit.
        grace: seconds for the agent to heed an interrupt before it is killed.
    """

    stall_after: float = 0.0
    turn_limit: float = 0.0
    grace: float = 5.0


@dataclass(frozen=True, slots=True)
class TurnContext:
    """Attributes:
    record: takes an event for the control plane, at once.
    """

    approvals: Approvals
    control: ControlChannel
    budget: Budget
    base: Base
    limits: Limits
    status: StatusReporter
    raise_alert: RaiseAlert
    record: Callable[[dict[str, Any]], None]

    def report(
        self, kind: EventKind, fields: Mapping[str, Any], raw: str = "", turn: Turn | None = None
    ) -> None:
        """Report an event of the agent."""
        event = {"type": kind.value, "at": time.time(), **fields}
        event |= turn.about if turn else {}
        self.record(event | ({"raw": cut(raw)} if raw else {}))


@dataclass(slots=True)
class Used:
    """Tokens and dollars. Input tokens have the cached ones in them, output tokens those of reasoning."""

    tokens: int = 0
    cost: float = 0.0


class Budget:
    """Adds up an agent's usage.

    Args:
        file: keeps the sum.
        tokens, dollars: the bounds, 0 for none.
    """

    def __init__(self, file: StateFile, tokens: int = 0, dollars: float = 0.0) -> None:
        self._file = file
        self._tokens, self._dollars = tokens, dollars
        kept = file.read()
        self.used = Used(int(_number(kept.get("tokens"))), _number(kept.get("cost")))

    def add(self, usage: Mapping[str, Any]) -> None:
        """Count a `usage` event; raises StateUnwritable, with the sum counted all the same."""
        self.used.tokens += int(_number(usage.get("input_tokens")))
        self.used.tokens += int(_number(usage.get("output_tokens")))
        self.used.cost += _number(usage.get("cost"))
        self._file.write({"tokens": self.used.tokens, "cost": self.used.cost})

    @property
    def spent(self) -> str:
        """Why no further turn may begin; "" while the bounds are not reached."""
        if self._tokens and self.used.tokens >= self._tokens:
            return f"the budget is spent: {self.used.tokens} of {self._tokens} tokens"
        if self._dollars and self.used.cost >= self._dollars:
            return f"the budget is spent: {self.used.cost:.2f} of {self._dollars:.2f} USD"
        return ""


def _number(value: object) -> float:
    """A usage figure as the agent says it: anything; what is no number counts as nothing."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return 0
    return value if isfinite(value) else 0


class Watchdog:
    """Watches one turn until it is cancelled; a turn that waits for a person is not stalled.

    Args:
        stop: ends the turn for a reason.
    """

    def __init__(self, turn: Turn, context: TurnContext, stop: Callable[[str], None]) -> None:
        self._turn = turn
        self._context = context
        self._stop = stop
        self._stalled = False

    async def run(self) -> None:
        """Watchdog."""
        try:
            while True:
                await self._pause()
                self._look()
        finally:
            if self._stalled:
                self._context.status.stalled("")

    def over(self) -> None:
        """The turn has ended, and with it the silence."""
        if self._stalled:
            self._goes_on()

    async def _pause(self) -> None:
        """Wait until something may be due."""
        turn, limits, now = self._turn, self._context.limits, _now()
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
        turn, limits, now = self._turn, self._context.limits, _now()
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
        self._context.status.stalled(said)
        self._context.report(EventKind.STALLED, {"seconds": round(silent, 1)}, turn=self._turn)

    def _goes_on(self) -> None:
        self._stalled = False
        self._context.status.stalled("")
        self._context.report(EventKind.STALLED, {"seconds": 0}, turn=self._turn)


def _now() -> float:
    return asyncio.get_running_loop().time()
