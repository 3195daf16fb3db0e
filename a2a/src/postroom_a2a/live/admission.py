"""Which calls of a server run, which wait for a moment, and which find it busy (docs/binding.md, Limits)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from postroom_a2a.live.served import ServedCall

MAX_STALLED = 256
"""Streams that may stand still at a time; they cost no more than memory."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a server takes.

    Attributes:
        share: of the calls that run, what one caller may have; 0 for three quarters.
        waiting: calls that wait for a place at a time; one caller may have three quarters of them.
        max_wait: seconds that a call waits for its place; with 0 none waits.
    """

    concurrency: int
    spare: int
    share: int
    waiting: int
    max_wait: float


class Admission:
    """The places of a server. Whoever waits is served in turn with the others, not in the order of the calls.

    Args:
        light: whether a call neither begins work nor streams, so that it overtakes.
        refuse: tells the caller that the server is busy.
    """

    def __init__(
        self,
        bounds: Bounds,
        *,
        light: Callable[[ServedCall], bool],
        begin: Callable[[ServedCall], None],
        refuse: Callable[[ServedCall], None],
    ) -> None:
        self._bounds = bounds
        self._share = bounds.share or bounds.concurrency - bounds.concurrency // 4
        self._light, self._begin, self._refuse = light, begin, refuse
        self._running = 0
        self._held: dict[str, int] = {}  # places by caller
        self._queues: dict[
            str, dict[ServedCall, asyncio.TimerHandle]
        ] = {}  # by caller; the next is first
        self._stalled: dict[ServedCall, None] = {}
        self.waiting = 0

    @property
    def stalled(self) -> int:
        """Streams that stand still."""
        return len(self._stalled)

    def offer(self, run: ServedCall) -> None:
        """Begin a call, or have it wait, or refuse it."""
        bounds = self._bounds
        if self._running < bounds.concurrency:
            room = self._held.get(run.caller, 0) < self._share or self._light(run)
        else:
            room = self._running < bounds.concurrency + bounds.spare and self._light(run)
        if room:
            self._take(run.caller)
            self._begin(run)
        else:
            self._queue(run)

    def free(self, run: ServedCall) -> None:
        """A call that ran is over, or counts no more."""
        caller = run.caller
        self._running -= 1
        if self._held[caller] > 1:
            self._held[caller] -= 1
        else:
            del self._held[caller]
        if self.waiting:
            self._begin_waiting()

    def stall(self, run: ServedCall) -> None:
        """A stream stands still: its place is for others. Of too many such streams one is ended."""
        self._stalled[run] = None
        self.free(run)
        if len(self._stalled) > MAX_STALLED:
            callers = Counter(each.caller for each in self._stalled)
            greedy = callers.most_common(1)[0][0]
            longest = next(each for each in self._stalled if each.caller == greedy)
            del self._stalled[longest]
            longest.stop_stalled()

    def resume(self, run: ServedCall) -> None:
        """A stream that stood still goes on or ends, whether or not there is a place."""
        self._stalled.pop(run, None)
        self._take(run.caller)

    def clear(self) -> list[ServedCall]:
        """Take out what waits."""
        runs = [run for mine in self._queues.values() for run in mine]
        for run in runs:
            self._leave(run)
        return runs

    def _take(self, caller: str) -> None:
        self._running += 1
        self._held[caller] = self._held.get(caller, 0) + 1

    def _queue(self, run: ServedCall) -> None:
        bounds = self._bounds
        mine = self._queues.get(run.caller, {})
        most = bounds.waiting - bounds.waiting // 4
        if bounds.max_wait <= 0 or self.waiting >= bounds.waiting or len(mine) >= most:
            self._refuse(run)
            return
        loop = asyncio.get_running_loop()
        mine[run] = loop.call_later(bounds.max_wait, self._give_up, run)
        self._queues[run.caller] = mine
        self.waiting += 1

    def _give_up(self, run: ServedCall) -> None:
        self._leave(run)
        self._refuse(run)

    def _leave(self, run: ServedCall) -> None:
        mine = self._queues.pop(run.caller)
        mine.pop(run).cancel()
        self.waiting -= 1
        if mine:
            self._queues[run.caller] = mine  # its next turn is behind everybody else's

    def _begin_waiting(self) -> None:
        """Begin what waits, as far as there is room."""
        while self.waiting and self._running < self._bounds.concurrency:
            callers = (c for c in self._queues if self._held.get(c, 0) < self._share)
            caller = next(callers, None)
            if caller is None:
                return
            run = next(iter(self._queues[caller]))
            self._leave(run)
            self._take(caller)
            self._begin(run)
