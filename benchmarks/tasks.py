"""A2A tasks from the request to the end, beside the publishes that they are made of; a backlog; the cost of one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from nats.js import JetStreamContext

from benchmarks.buses import PLAIN, TIMEOUT, Buses, folded, follow, plain_stream
from benchmarks.connection import Connection
from benchmarks.drain import SIDECAR, STREAMS, Drained, drain
from benchmarks.processes import Sandboxed, processor_time
from benchmarks.report import Sheet
from benchmarks.requesters import (
    FOLLOWED,
    RECORDS,
    AgentRequester,
    Arrivals,
    Course,
    Floor,
    PersonRequester,
)
from benchmarks.room import PostRoom, post_room
from benchmarks.spread import percentile
from postroom.protocol.shapes import Worker

TEMPLATE = Path(__file__).resolve().parent / "worker" / "instant.toml"

FULL = {"rounds": 5, "turn": 100, "backlogs": 3, "backlog": 1000, "batches": 3, "batch": 300}
QUICK = {"rounds": 1, "turn": 5, "backlogs": 1, "backlog": 20, "batches": 1, "batch": 10}
"""How often and how many tasks: turns, backlogs, and batches whose processor time is read."""

NOTES = (
    "The worker is sandboxed (bubblewrap); its agent completes a task in the moment in which it has read it.",
    "One at a time: the next task is asked for when the requester was told of the end of the last one.",
    "stored: until a JetStream consumer has the `completed` record, which is on disk then.",
    "told: until the control plane's `update` has reached the requester on its priority lane, after the fold.",
    "person: POST /v1/tasks, then GET /v1/tasks/ID?wait=final, over one connection.",
    "raw: nats-py with the core credential and a plain stream with the settings of INBOX.",
    f"{RECORDS} acknowledged publishes are what one task stores before it is completed; what follows is stored beside.",
    "accept to stdin: from the PubAck of the request until the agent has read the task, by one clock.",
    "raw publish to deliver: from the publish until a waiting push consumer has the record.",
    "backlog: queued by one requester, one at a time, for a worker that is stopped; then it is started.",
    "backlog, first to last: records of the worker's tasks. RSS before: of the sidecar, that of its last start, idle.",
    "CPU per task: user and system time over a batch, one at a time, with what the process does beside it.",
    "The control plane is also the gateway, and the sidecar the door: each frame of a worker goes through both.",
    "The requester and the floor's client are one process, which shares the cores with all of these.",
)


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about two minutes."""
    with post_room() as room:
        asyncio.run(_measure(sheet, room, QUICK if quick else FULL))
    for text in NOTES:
        sheet.note(text)


async def _measure(sheet: Sheet, room: PostRoom, plan: dict[str, int]) -> None:
    async with AsyncExitStack() as stack:
        buses = Buses(stack, room)
        stream = (await buses.core()).jetstream(timeout=TIMEOUT)
        bus = await buses.agent(room.address("requester"))
        worker = room.idle_worker("instant", TEMPLATE)
        requester = AgentRequester(bus, worker["uid"])
        listening = await requester.listen()
        turns = await _Turns.open(stack, room, stream, requester, worker)
        await turns.run(plan["rounds"], plan["turn"])
        turns.tell(sheet)
        costs = [
            await _cost(room, stream, requester, worker, plan["batch"])
            for _ in range(plan["batches"])
        ]
        for name in costs[0]:
            sheet.add(f"CPU per task, {name}", [cost[name] for cost in costs], "ms CPU")
        await listening.close()
        drained = [
            await drain(room, stream, bus, TEMPLATE, nick=f"late{each}", count=plan["backlog"])
            for each in range(plan["backlogs"])
        ]
        _tell_drained(sheet, drained, plan["backlog"])


class _Turns:
    """Tasks one at a time: an agent's, a person's, and the floors between them."""

    def __init__(
        self,
        stream: JetStreamContext,
        requester: AgentRequester,
        person: PersonRequester,
        floor: Floor,
        ends: Arrivals,
    ) -> None:
        self._stream = stream
        self._requester = requester
        self._person = person
        self._floor = floor
        self._ends = ends
        self._found: dict[str, list[list[float]]] = {}

    @classmethod
    async def open(
        cls,
        stack: AsyncExitStack,
        room: PostRoom,
        stream: JetStreamContext,
        requester: AgentRequester,
        worker: Worker,
    ) -> _Turns:
        """Connect what is missing."""
        server, floor, ends = room.server, Floor(stream), Arrivals()
        connection = Connection(server["url"], server["token"])
        person = PersonRequester(await stack.enter_async_context(connection), worker["uid"])
        for name in (PLAIN, FOLLOWED):
            await stream.add_stream(plain_stream(name))
        await follow(stream, FOLLOWED, FOLLOWED, floor.delivered)
        await follow(stream, "TASKS", f"worker.{worker['uid']}.tasks.*.completed", ends.stored)
        return cls(stream, requester, person, floor, ends)

    async def run(self, rounds: int, count: int) -> None:
        """Take turns, `count` times each."""
        for _ in range(5):  # connections, caches and code paths are warm then
            await self._requester.delegate(self._ends)
            await self._person.delegate()
        for _ in range(rounds):
            await folded(self._stream, STREAMS)
            self._keep("raw publishes", [await self._floor.store() for _ in range(count)])
            self._keep("raw deliver", [await self._floor.deliver() for _ in range(count)])
            self._keep_courses([await self._requester.delegate(self._ends) for _ in range(count)])
            await folded(self._stream, STREAMS)
            await self._person.open()
            self._keep("person", [await self._person.delegate() for _ in range(count)])

    def _keep(self, name: str, values: list[float]) -> None:
        self._found.setdefault(name, []).append(values)

    def _keep_courses(self, courses: list[Course]) -> None:
        self._keep("stored", [course.stored for course in courses if course.stored is not None])
        self._keep("told", [course.told for course in courses])
        self._keep("to stdin", [course.read - course.accepted for course in courses])
        self._keep("from begin to stdin", [course.read for course in courses])

    def tell(self, sheet: Sheet) -> None:
        """Write down what was found."""
        titles = {
            "raw publishes": f"raw, {RECORDS} publishes in a row",
            "stored": "delegate to completed, stored",
            "told": "delegate to completed, told",
            "person": "delegate to completed, person",
            "raw deliver": "raw publish to deliver",
            "to stdin": "accept to stdin",
            "from begin to stdin": "delegate to stdin",
        }
        for name, title in titles.items():
            sheet.add(f"{title}: p50", self._part(name, 0.5), "ms")
            sheet.add(f"{title}: p99", self._part(name, 0.99), "ms")
        for name in ("stored", "told", "person"):
            for share in (0.5, 0.99):
                sheet.compare(
                    f"{name} / {RECORDS} raw publishes, p{100 * share:g}",
                    self._part(name, share),
                    self._part("raw publishes", share),
                )
        for name in ("to stdin", "from begin to stdin"):
            sheet.compare(
                f"{titles[name]} / raw deliver, p50",
                self._part(name, 0.5),
                self._part("raw deliver", 0.5),
            )

    def _part(self, name: str, share: float) -> list[float]:
        return [percentile(values, share) for values in self._found[name]]


async def _cost(
    room: PostRoom,
    stream: JetStreamContext,
    requester: AgentRequester,
    worker: Worker,
    count: int,
) -> dict[str, float]:
    """Milliseconds of processor time that each process spends on one task, over `count` of them."""
    server, inside = room.server, Sandboxed.below(worker["pid"])
    parts = {
        "control plane": [server["pid"]],
        "nats-server": [server["nats_pid"]],
        SIDECAR: [inside.sidecar],
        "agent": inside.agent,
    }
    await folded(stream, STREAMS)
    before = {name: sum(map(processor_time, pids)) for name, pids in parts.items()}
    for _ in range(count):
        await requester.delegate()
    await folded(stream, STREAMS)
    return {
        name: 1000 * (sum(map(processor_time, pids)) - before[name]) / count
        for name, pids in parts.items()
    }


def _tell_drained(sheet: Sheet, drained: list[Drained], count: int) -> None:
    title = f"backlog of {count}"
    sheet.add(f"{title}: queued", [each.queueing for each in drained], "/s")
    sheet.add(f"{title}: start to first", [each.startup for each in drained], "s")
    sheet.add(f"{title}: first to last", [each.draining for each in drained], "s")
    sheet.add(f"{title}: drained", [each.rate for each in drained], "/s")
    sheet.add(f"{title}, completed: tasks", [each.completed for each in drained], "")
    sheet.add(f"{title}, completed: in order", [each.in_order for each in drained], "")
    sheet.add(f"{title}, completed: told", [each.told for each in drained], "")
    for name in drained[0].before:
        sheet.add(f"{title}, {name}: RSS before", [each.before[name] for each in drained], "MiB")
        sheet.add(f"{title}, {name}: peak", [each.peak[name] for each in drained], "MiB")
        sheet.add(f"{title}, {name}: after", [each.after[name] for each in drained], "MiB")
        sheet.compare(
            f"{title}: {name}, RSS at peak / before",
            [each.peak[name] for each in drained],
            [each.before[name] for each in drained],
        )
