"""Processor time and rate of messages and tasks, one at a time and 16 at a time; a person's sends."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.plane.findings import Findings
from benchmarks.plane.load import (
    PLANE,
    SERVER,
    SIDECAR,
    Loaded,
    Request,
    accepted,
    answered,
    completed,
)
from benchmarks.plane.sides import Side
from benchmarks.room import post_room

TEMPLATE = Path(__file__).resolve().parents[1] / "worker" / "instant.toml"

WORKERS = 4
"""As many as do the work of 16 requests: each takes a quarter of them."""

WARM = 40
"""Requests of each work before the first round: connections, caches and code paths are warm then."""

TARGETS = {PLANE: "<= 0.4", SERVER: "<= 0.75", SIDECAR: "<= 0.75"}
SHORT = {PLANE: "plane", SERVER: "nats", SIDECAR: "sidecars"}
WORKS: dict[str, Request] = {"message": answered, "task": completed}


@asynccontextmanager
async def loaded(side: Side, workers: int = 0) -> AsyncGenerator[Loaded]:
    """A post room of `side` with so many workers, 0 for `WORKERS`."""
    workers = workers or WORKERS
    with post_room(side.python) as room:
        uids = [room.idle_worker(f"w{number}", TEMPLATE)["uid"] for number in range(workers)]
        async with AsyncExitStack() as stack:
            yield Loaded(side, room, uids, stack)


async def costs(
    found: Findings, sides: Sequence[Loaded], rounds: int, counts: dict[int, int]
) -> None:
    """Each round has a batch of each work, at each concurrency, on each side; `counts` is by concurrency."""
    for each in sides:
        for request in WORKS.values():
            await each.batch(request, each.workers, WARM, 8)
    for number in range(rounds):
        for name, request in WORKS.items():
            for concurrent, count in counts.items():
                for each in _turned(sides, number):
                    whom = each.workers[:1] if concurrent == 1 else each.workers
                    done = await each.batch(request, whom, count, concurrent)
                    side, title = each.side.name, f"{name} x{concurrent}"
                    for part, target in TARGETS.items():
                        metric = f"{title}: {SHORT[part]}"
                        found.keep(metric, side, done.each(part), "ms", target)
                    target = ">= 2.3" if name == "task" and concurrent > 1 else ""
                    found.keep(f"{title}: rate", side, done.rate, "/s", target)
                    found.keep(f"{title}: p50", side, done.p50, "ms")


async def sends(found: Findings, sides: Sequence[Loaded], rounds: int, count: int) -> None:
    """A person's sends, one at a time, to a worker that does not run."""
    inboxes = {each.side.name: each.room.address("recipient") for each in sides}
    for number in range(rounds + 1):
        for each in _turned(sides, number):
            done = await each.batch(accepted, [inboxes[each.side.name]], count, 1)
            if number:  # the first one warms up
                found.keep("send, accepted: p50", each.side.name, done.p50, "ms", "<= 0.5")
                found.keep("send, accepted: plane", each.side.name, done.each(PLANE), "ms")


def _turned(sides: Sequence[Loaded], number: int) -> list[Loaded]:
    return [*sides] if number % 2 == 0 else [*sides][::-1]
