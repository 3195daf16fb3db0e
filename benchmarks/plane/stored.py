"""A task from the request until its `completed` is stored, beside four raw publishes on the same server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from benchmarks.buses import TIMEOUT, Buses, follow, plain_stream
from benchmarks.plane.findings import Findings
from benchmarks.plane.load import Loaded
from benchmarks.requesters import AgentRequester, Arrivals, Floor
from benchmarks.spread import percentile

FLOOR = 4
"""Raw publishes that a task is compared with, whatever it stores itself."""


@dataclass(frozen=True, slots=True)
class _Requester:
    loaded: Loaded
    agent: AgentRequester
    floor: Floor
    ends: Arrivals

    @classmethod
    async def open(cls, stack: AsyncExitStack, loaded: Loaded) -> _Requester:
        buses = Buses(stack, loaded.room)
        stream = (await buses.core()).jetstream(timeout=TIMEOUT)
        await stream.add_stream(plain_stream())
        address = await asyncio.to_thread(loaded.room.address, "requester")
        agent, ends = AgentRequester(await buses.agent(address), loaded.workers[0]), Arrivals()
        listening = await agent.listen()
        stack.push_async_callback(listening.close)
        await follow(stream, "TASKS", f"worker.{loaded.workers[0]}.tasks.*.completed", ends.stored)
        return cls(loaded, agent, Floor(stream), ends)

    async def turn(self, count: int) -> tuple[float, float]:
        """The p50 of so many tasks and of as many times `FLOOR` publishes, one at a time; milliseconds."""
        await self.loaded.rest()
        raw = [await self.floor.store() for _ in range(count)]
        await self.loaded.rest()
        tasks = [await self.agent.delegate(self.ends) for _ in range(count)]
        stored = [task.stored for task in tasks if task.stored is not None]
        return percentile(stored, 0.5), percentile(raw, 0.5)


async def stored(found: Findings, sides: Sequence[Loaded], rounds: int, count: int) -> None:
    """Each round has both on each side."""
    async with AsyncExitStack() as stack:
        requesters = [await _Requester.open(stack, each) for each in sides]
        for number in range(rounds + 1):
            for each in requesters if number % 2 else requesters[::-1]:
                took, raw = await each.turn(count if number else 5)
                if number:  # the first round warms up
                    name = each.loaded.side.name
                    found.keep("delegate to stored: p50", name, took, "ms")
                    found.keep(f"{FLOOR} raw publishes: p50", name, raw, "ms")
                    found.keep("delegate / raw publishes", name, took / raw, "", "now <= 3")
