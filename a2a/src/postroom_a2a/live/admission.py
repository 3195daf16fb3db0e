"""Admission control: which calls of a server run, wait, or find it busy (docs/binding.md, Limits)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from postroom_a2a.live.served import ServedCall

MAX_STALLED = 256
"""Most stalled streams at a time; they cost no more than memory."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a server.

    Attributes:
        share: one caller's part of the running calls; 0 for three quarters.
        waiting: calls that wait for a slot at a time; one caller may have three quarters of them.
        max_wait: seconds that a call waits for its slot; with 0 no call waits.
    """

    concurrency: int
    spare: int
    share: int
    waiting: int
    max_wait: float


class Admission:
    """The slots of a server. Callers with waiting calls take turns, however many calls each has.

    Args:
        light: whether a call overtakes, because it neither begins work nor streams.
        refuse: answers that the server is busy.
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
        self._held: dict[str, int] = {}  # slots by caller
        # By caller; the next caller and its next call are first.
        self._queues: dict[str, dict[ServedCall, asyncio.TimerHandle]] = {}
        self._stalled: dict[ServedCall, None] = {}
        self.waiting = 0

    @property
    def stalled(self) -> int:
        """Number of stalled streams."""
        return len(self._stalled)

    def offer(self, run: ServedCall) -> None:
        """Begin, queue or refuse a call."""
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
        """Free the slot of a call that is over or stalled."""
        caller = run.caller
        self._running -= 1
        if self._held[caller] > 1:
            self._held[caller] -= 1
        else:
            del self._held[caller]
        if self.waiting:
            self._begin_waiting()

    def stall(self, run: ServedCall) -> None:
        """Free the slot of a stalled stream; of too many, end the oldest of the caller with most of them."""
        self._stalled[run] = None
        self.free(run)
        if len(self._stalled) > MAX_STALLED:
            callers = Counter(each.caller for each in self._stalled)
            greedy = callers.most_common(1)[0][0]
            longest = next(each for each in self._stalled if each.caller == greedy)
            del self._stalled[longest]
            longest.stop_stalled()

    def resume(self, run: ServedCall) -> None:
        """Count a stalled stream that goes on or ends, even beyond the limit."""
        self._stalled.pop(run, None)
        self._take(run.caller)

    def clear(self) -> list[ServedCall]:
        """Remove and return the waiting calls."""
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
        """Begin waiting calls while slots are free."""
        while self.waiting and self._running < self._bounds.concurrency:
            callers = (c for c in self._queues if self._held.get(c, 0) < self._share)
            caller = next(callers, None)
            if caller is None:
                return
            run = next(iter(self._queues[caller]))
            self._leave(run)
            self._take(caller)
            self._begin(run)
