"""Calls made one after the other by so many at a time, and how long they took."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from benchmarks.a2a.peers.kinds import Caller

LEAST = 3
"""Calls for each that is under way at a time, before a turn is over: a first wave alone would say little."""

CALL_TIMEOUT = 30.0
"""Seconds that all calls still under way at the end of a turn may take."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to do in one turn.

    Attributes:
        work: "message", "task" or "stream" (see `agent`).
        size: bytes of the text sent, which comes back.
        concurrency: calls under way at a time.
        seconds: after which none is begun any more, if each place has made `LEAST` calls on the average.
        limit: of calls begun, 0 for none.
    """

    work: str
    size: int
    concurrency: int
    seconds: float
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of it: milliseconds, and calls per second from the first beginning to the last end.

    `first_p50` and `first_p99` are the times to the first event of a stream, 0 for other work.
    """

    count: int
    rate: float
    mean: float
    p50: float
    p99: float
    first_p50: float = 0.0
    first_p99: float = 0.0


@dataclass
class _Clock:
    """What the callers of one turn share."""

    order: Order
    begin: float = field(default_factory=perf_counter)
    started: int = 0
    took: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)

    def another(self) -> bool:
        """Whether one more call may begin; it counts as begun then."""
        late = perf_counter() - self.begin >= self.order.seconds
        if late and self.started >= LEAST * self.order.concurrency:
            return False
        if self.order.limit and self.started >= self.order.limit:
            return False
        self.started += 1
        return True


async def turn(caller: Caller, order: Order) -> Turn:
    """Do `order`.

    Raises:
        Exception: whatever the first call that failed has raised (in a group).
        TimeoutError: calls did not end.
    """
    content = f"{order.work} ".ljust(order.size, "x")
    clock = _Clock(order)
    call = _stream(caller, content, clock) if order.work == "stream" else _unary(caller, content)
    async with asyncio.timeout(order.seconds + CALL_TIMEOUT), asyncio.TaskGroup() as group:
        for _ in range(order.concurrency):
            group.create_task(_repeat(call, clock))
    took = perf_counter() - clock.begin
    return Turn(
        count=len(clock.took),
        rate=len(clock.took) / took,
        mean=1000 * sum(clock.took) / len(clock.took),
        p50=1000 * _rank(clock.took, 0.5),
        p99=1000 * _rank(clock.took, 0.99),
        first_p50=1000 * _rank(clock.firsts, 0.5),
        first_p99=1000 * _rank(clock.firsts, 0.99),
    )


async def _repeat(call: Callable[[], Awaitable[None]], clock: _Clock) -> None:
    while clock.another():
        begin = perf_counter()
        await call()
        clock.took.append(perf_counter() - begin)


def _unary(caller: Caller, content: str) -> Callable[[], Awaitable[None]]:
    async def call() -> None:
        await caller.unary(content)

    return call


def _stream(caller: Caller, content: str, clock: _Clock) -> Callable[[], Awaitable[None]]:
    async def call() -> None:
        clock.firsts.append(await caller.stream(content))

    return call


def _rank(values: Sequence[float], share: float) -> float:
    """Nearest rank, as `benchmarks.spread.percentile`; 0 of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
