"""A thousand tasks that waited for an offline worker: how fast it works them off, and in how much memory."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nats.js import JetStreamContext

from benchmarks.buses import folded, follow
from benchmarks.processes import MIB, Sandboxed, memory
from benchmarks.requesters import AgentRequester, Arrivals
from benchmarks.room import PostRoom
from postroom.bus.nats import NatsBus

STREAMS = ("INBOX", "TASKS", "RECEIPTS")
"""Streams that the tasks go through; everything is over when they are folded."""

SPACING = 0.05
"""Seconds between two readings of memory."""

SETTLE = 1.0
"""Seconds until what is idle has tidied up."""

DEADLINE = 180.0
SIDECAR = "sidecar"


@dataclass
class Drained:
    """What was found.

    Attributes:
        queueing: tasks a second that were stored while the worker was offline, one at a time.
        startup: seconds from the command that starts the worker to the first record of a task.
        draining: seconds from there to the last one.
        rate: tasks a second in that time.
        completed: tasks that were.
        in_order: those that were completed in the place that their request had.
        told: those of which the requester was told.
        before, peak, after: MiB of each process; those of the sidecar before are of the start before, which was idle.
    """

    queueing: float
    startup: float
    draining: float
    rate: float
    completed: int
    in_order: int
    told: int
    before: dict[str, float] = field(default_factory=dict)
    peak: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)


async def drain(
    room: PostRoom,
    stream: JetStreamContext,
    bus: NatsBus,
    template: Path,
    *,
    nick: str,
    count: int,
) -> Drained:
    """Queue `count` tasks for a new worker that is stopped, and start it."""
    worker = await asyncio.to_thread(room.idle_worker, nick, template)
    server = room.server
    pids = {"control plane": server["pid"], "nats-server": server["nats_pid"]}
    await asyncio.sleep(SETTLE)
    before = _read({SIDECAR: Sandboxed.below(worker["pid"]).sidecar})
    with room.client() as client:
        await asyncio.to_thread(client.stop, nick)
        requester = AgentRequester(bus, worker["uid"])
        begin = time.monotonic()
        asked = [await requester.ask() for _ in range(count)]
        queueing = count / (time.monotonic() - begin)
        await folded(stream, STREAMS)
        before |= _read(pids)

        first, done = Arrivals(), Arrivals()
        chains = f"worker.{worker['uid']}.tasks"
        await follow(stream, "TASKS", f"{chains}.>", first.stored)
        await follow(stream, "TASKS", f"{chains}.*.completed", done.stored)
        listening = await requester.listen()
        started = time.time()
        pid = (await asyncio.to_thread(client.restart, nick))["pid"]
    watch = _Peak(pids, lambda: Sandboxed.below(pid).sidecar)
    watching = asyncio.create_task(watch.run())
    try:
        begun = await first.of(asked[0], DEADLINE)
        ends = [await done.of(task, DEADLINE) for task in asked]
        for task in asked:
            await requester.told.of(task, DEADLINE)
        await folded(stream, STREAMS)
    finally:
        watching.cancel()
        await asyncio.wait({watching})
        await listening.close()
    await asyncio.sleep(SETTLE)
    draining = max(ends) - begun
    return Drained(
        queueing=queueing,
        startup=begun - started,
        draining=draining,
        rate=count / draining,
        completed=len(done.order),
        in_order=sum(one == other for one, other in zip(asked, done.order, strict=True)),
        told=len(requester.told.order),
        before=before,
        peak=watch.peak,
        after=_read(watch.pids),
    )


class _Peak:
    """Reads the memory of processes again and again, and keeps the greatest."""

    def __init__(self, pids: dict[str, int], sidecar: Callable[[], int]) -> None:
        self.pids = dict(pids)
        self.peak: dict[str, float] = {}
        self._sidecar = sidecar

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if SIDECAR not in self.pids:
                with contextlib.suppress(RuntimeError):  # it has not begun yet
                    self.pids[SIDECAR] = self._sidecar()
            for name, size in _read(self.pids).items():
                self.peak[name] = max(size, self.peak.get(name, 0.0))
            await asyncio.sleep(SPACING)


def _read(pids: dict[str, int]) -> dict[str, float]:
    return {name: memory([pid]).rss / MIB for name, pid in pids.items()}
