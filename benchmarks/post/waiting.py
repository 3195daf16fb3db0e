"""Many agents that wait for mail by long polls: memory of the control plane for each, and how soon one is woken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from benchmarks.connection import Connection
from benchmarks.plane.waiters import descriptors
from benchmarks.post.programs import FREE, Office, Program
from benchmarks.processes import KIB, memory
from benchmarks.report import Sheet
from benchmarks.room import PostRoom, post_room
from benchmarks.senders import TEXT
from benchmarks.spread import percentile

FULL, QUICK = 2000, 20
WAKES, QUICK_WAKES = 200, 5
ROUNDS = 3

AT_ONCE = 32
"""Connections that are being made at a time; a listener's backlog is short."""

POLL = "/v1/inbox?after=0&unread=true&wait=600"


def measure(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about a minute."""
    count, wakes = (QUICK, QUICK_WAKES) if quick else (FULL, WAKES)
    with descriptors(), post_room(more=FREE) as room:
        asyncio.run(_measure(sheet, room, count, wakes, 1 if quick else ROUNDS))


async def _measure(sheet: Sheet, room: PostRoom, count: int, wakes: int, rounds: int) -> None:
    async with AsyncExitStack() as stack:
        office = Office(room, stack)
        await office.open()
        (sender,) = await office.programs("sender", 1)
        agents = await office.programs("agent", count)
        own = await office.connection(sender.key)
        for each in agents[: rounds * wakes : 7]:  # code paths are warm then
            await (await office.connection(each.key)).call("GET", "/v1/inbox")
        before = memory([office.plane]).rss
        polls = await _polls(office, agents)
        await asyncio.sleep(1.0)  # what opening them has left behind is collected
        grown = memory([office.plane]).rss - before
        found = []
        for number in range(rounds):
            woken = agents[number * wakes : (number + 1) * wakes]
            took = [await _wake(own, each, polls[each.uid]) for each in woken]
            found.append(took)
        for poll in polls.values():
            poll.cancel()
    sheet.add(f"{count} long polls: memory for each", [grown / count / KIB], "kB")
    for share in (0.5, 0.99):
        values = [1000 * percentile(took, share) for took in found]
        sheet.add(f"{count} long polls: wake-up p{100 * share:.0f}", values, "ms")
    sheet.note(
        "Wake-up: from the send to the answer of the recipient's poll, the send itself included; one at a time, with "
        "all other polls open. Memory: resident memory of the control plane, which has each poll's connection."
    )


async def _polls(office: Office, agents: Sequence[Program]) -> dict[str, asyncio.Task[float]]:
    """An open poll for each agent; each ends with the instant at which it was answered."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def begin(agent: Program) -> asyncio.Task[float]:
        async with gate:
            connection = await office.connection(agent.key)
        return asyncio.create_task(_answered(connection))

    tasks = await asyncio.gather(*map(begin, agents))
    return {agent.uid: task for agent, task in zip(agents, tasks, strict=True)}


async def _answered(connection: Connection) -> float:
    await connection.call("GET", POLL, seconds=900.0)
    return time.perf_counter()


async def _wake(own: Connection, agent: Program, poll: asyncio.Task[float]) -> float:
    begin = time.perf_counter()
    await own.call("POST", "/v1/messages", {"to": agent.uid, "text": TEXT, "expects_reply": False})
    return await poll - begin
