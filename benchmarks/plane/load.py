"""What a person asks of a post room over HTTP, so many at a time: messages that are answered, tasks, plain sends.

One client makes the requests of both sides, over connections that do almost nothing themselves.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

from benchmarks.connection import TIMEOUT, Connection
from benchmarks.plane.sides import Side
from benchmarks.processes import descendants, is_wall, processor_time
from benchmarks.room import PostRoom
from benchmarks.senders import TEXT
from benchmarks.spread import percentile

PLANE, SERVER, SIDECAR = "control plane", "nats-server", "sidecar"

_STEP = 0.1
_IDLE = 0.03
"""A post room rests once its control plane uses less than that share of a core for a moment."""

_RESTS = 5.0
"""Seconds after which we measure in any case."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of requests.

    Attributes:
        seconds: from the first request to the last answer.
        latencies: seconds of each, in no order.
        cost: seconds of processor time by part, until the post room rests again.
    """

    seconds: float
    latencies: list[float]
    cost: dict[str, float]

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.latencies) / self.seconds

    @property
    def p50(self) -> float:
        """Milliseconds."""
        return 1000 * percentile(self.latencies, 0.5)

    def each(self, part: str) -> float:
        """Milliseconds of processor time of a part per request."""
        return 1000 * self.cost[part] / len(self.latencies)


Request = Callable[[Connection, str], Awaitable[None]]


async def answered(connection: Connection, worker: str) -> None:
    """A message, until it is answered."""
    body = {"to": worker, "text": TEXT, "expects_reply": True}
    sent = json.loads(await connection.call("POST", "/v1/messages", body))
    path = f"/v1/messages/{sent['id']}?wait=answered&timeout={TIMEOUT:g}"
    _check(json.loads(await connection.call("GET", path)), "answered")


async def completed(connection: Connection, worker: str) -> None:
    """A task, until it is completed."""
    body = {"to": worker, "text": TEXT}
    asked = json.loads(await connection.call("POST", "/v1/tasks", body))
    path = f"/v1/tasks/{asked['id']}?wait=final&timeout={TIMEOUT:g}"
    _check(json.loads(await connection.call("GET", path)), "completed")


async def accepted(connection: Connection, recipient: str) -> None:
    """A message, until it is stored."""
    body = {"to": recipient, "text": TEXT, "expects_reply": False}
    await connection.call("POST", "/v1/messages", body)


def _check(done: dict[str, str], wanted: str) -> None:
    if done["state"] != wanted:
        raise RuntimeError(f"it is {done['state']}, not {wanted}: {done}")


class Loaded:
    """A running post room of one side, with workers that answer at once.

    Attributes:
        workers: their uids.
    """

    def __init__(
        self, side: Side, room: PostRoom, workers: list[str], stack: AsyncExitStack
    ) -> None:
        self.side = side
        self.room = room
        self.workers = workers
        self._stack = stack
        self._open: list[Connection] = []

    async def batch(self, request: Request, whom: list[str], count: int, concurrent: int) -> Batch:
        """Make `count` requests, `concurrent` at a time, in turns to each of `whom`."""
        connections = await self.connections(concurrent)
        recipients = itertools.islice(itertools.cycle(whom), count)
        latencies: list[float] = []
        await self.rest()
        before = self.spent()
        begin = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for connection in connections:
                tasks.create_task(_drain(connection, request, recipients, latencies))
        seconds = time.perf_counter() - begin
        await self.rest()
        after = self.spent()
        return Batch(seconds, latencies, {part: after[part] - before[part] for part in before})

    async def connections(self, count: int) -> list[Connection]:
        """So many open connections; the server closes those that were idle for a while."""
        server = self.room.server
        while len(self._open) < count:
            connection = Connection(server["url"], server["token"])
            self._open.append(await self._stack.enter_async_context(connection))
        for connection in self._open[:count]:
            await connection.open()
        return self._open[:count]

    def parts(self) -> dict[str, list[int]]:
        """The processes by part. What the control plane has started, and is neither of the others, is part of it."""
        return processes(self.room)

    def spent(self) -> dict[str, float]:
        """Seconds of processor time of each part since its start."""
        return {part: sum(map(processor_time, pids)) for part, pids in self.parts().items()}

    async def rest(self) -> None:
        """Wait until the control plane does nothing more for what was asked."""
        end = time.monotonic() + _RESTS
        pids = self.parts()[PLANE]
        before = sum(map(processor_time, pids))
        while time.monotonic() < end:
            await asyncio.sleep(_STEP)  # nothing tells that all was folded and told
            now = sum(map(processor_time, pids))
            if now - before < _IDLE * _STEP:
                return
            before = now


def processes(room: PostRoom) -> dict[str, list[int]]:
    """The processes of a post room by part."""
    server = room.server
    parts: dict[str, list[int]] = {
        PLANE: [server["pid"]],
        SERVER: [server["nats_pid"]],
        SIDECAR: [],
    }
    below = descendants(server["pid"])
    inside: set[int] = {server["nats_pid"]}
    for pid, words in below.items():
        if is_wall(words):
            inside |= {pid, *descendants(pid)}
    for pid, words in below.items():
        if "postroom.sidecar" in words and not is_wall(words):
            parts[SIDECAR].append(pid)
            inside |= {pid, *descendants(pid)}
    parts[PLANE] += [pid for pid in below if pid not in inside]
    return parts


async def _drain(
    connection: Connection, request: Request, recipients: Iterator[str], latencies: list[float]
) -> None:
    for recipient in recipients:
        begin = time.perf_counter()
        await request(connection, recipient)
        latencies.append(time.perf_counter() - begin)
