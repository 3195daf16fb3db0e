"""A burst of sends, so many at a time: how long it took, and each of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.senders import Sender
from benchmarks.spread import percentile


@dataclass(frozen=True, slots=True)
class Burst:
    """The measurement.

    Attributes:
        seconds: from the first send to the last answer.
        latencies: seconds from each send to its answer.
    """

    seconds: float
    latencies: list[float]

    @property
    def rate(self) -> float:
        """Accepted sends per second."""
        return len(self.latencies) / self.seconds

    def latency(self, share: float) -> float:
        """Milliseconds that `share` of the sends did not exceed."""
        return 1000 * percentile(self.latencies, share)


async def burst(sender: Sender, count: int, concurrent: int, seconds: float) -> Burst:
    """Send `count` messages, `concurrent` at a time; after `seconds` no further one is begun."""
    items = iter(await sender.prepare(count))
    latencies: list[float] = []
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(concurrent):
            tasks.create_task(_drain(sender, items, begin + seconds, latencies))
    return Burst(time.perf_counter() - begin, latencies)


async def _drain(
    sender: Sender, items: Iterator[Any], until: float, latencies: list[float]
) -> None:
    for item in items:
        begin = time.perf_counter()
        await sender.send(item)
        now = time.perf_counter()
        latencies.append(now - begin)
        if now > until:
            return
