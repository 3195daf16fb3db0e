"""Accepted sends: a plain JetStream publish, an agent's, a sidecar's and a person's, in turns on one post room."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from benchmarks.bursts import Burst, burst
from benchmarks.report import Sheet
from benchmarks.room import PostRoom, post_room
from benchmarks.senders import Senders

FULL = {1: 100, 16: 240, 64: 240}
QUICK = {1: 10, 4: 20}
"""Sends of one turn, by how many are under way at a time.

Three of the ways are one pair of sender and recipient, and nobody takes anything out of the inbox: over all rounds
they stay under its bound (`postroom.protocol.streams.INBOX_PER_PAIR`).
"""

ROUNDS = 4

TURN = 0.7
"""Seconds after which a turn is cut short."""

NOTES = (
    "rate: accepted sends per second. Each is on disk before it counts (sync_interval: always, file, one replica).",
    "raw: nats-py's js.publish with the core credential into a stream that nobody follows; the floor.",
    "inbox: the same call to an inbox, whose records the post office folds into SQL meanwhile, as for all below it.",
    "agent: Postroom's bus with an agent's credential, through the import from the edge account to the core account.",
    "sidecar: the same with id and envelope made per send, as a worker's sidecar does.",
    "person: POST /v1/messages, the whole accepted send of a person: HTTP, who is who, the log.",
    "workers: the same to workers that answer each message: acceptance has to go before what follows it.",
    f"A turn ends after its sends or after {TURN} s; the p99 of fewer than 100 sends is the slowest of them.",
    "One client process makes all sends; it shares the cores with the server and the control plane.",
)


def run(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about a minute."""
    with post_room() as room:
        asyncio.run(_Turns(sheet, quick=quick).run(room))


class _Turns:
    def __init__(self, sheet: Sheet, *, quick: bool) -> None:
        self._sheet = sheet
        self._plan = QUICK if quick else FULL
        self._rounds = 1 if quick else ROUNDS
        self._found: dict[tuple[str, int], list[Burst]] = {}

    async def run(self, room: PostRoom) -> None:
        async with AsyncExitStack() as stack:
            senders = Senders(stack, room)
            ways = await senders.open(max(self._plan))
            for way in ways.values():
                await burst(way, 10, 2, TURN)  # connections, caches and code paths are warm then
            for number in range(self._rounds):
                for concurrent, count in self._plan.items():
                    for name in _turned(list(ways), number):
                        await senders.caught_up()
                        done = await burst(ways[name], count, concurrent, TURN)
                        self._found.setdefault((name, concurrent), []).append(done)
        for concurrent in self._plan:
            self._tell(list(ways), concurrent)
        few, many = ([b.rate for b in self._found["workers", c]] for c in [*self._plan][-2:])
        self._sheet.compare("workers, most at a time/fewer", many, few)
        for text in NOTES:
            self._sheet.note(text)

    def _tell(self, names: list[str], concurrent: int) -> None:
        rates = {name: [b.rate for b in self._found[name, concurrent]] for name in names}
        for name in names:
            bursts, title = self._found[name, concurrent], f"{concurrent} at a time, {name}"
            self._sheet.add(f"{title}: rate", rates[name], "/s")
            self._sheet.add(f"{title}: p50", [b.latency(0.5) for b in bursts], "ms")
            self._sheet.add(f"{title}: p99", [b.latency(0.99) for b in bursts], "ms")
        for name in names[1:]:
            self._sheet.compare(f"{name}/raw, {concurrent} at a time", rates[name], rates["raw"])
        self._sheet.compare(f"agent/inbox, {concurrent} at a time", rates["agent"], rates["inbox"])
        tails = {
            name: [b.latency(0.99) / b.latency(0.5) for b in self._found[name, concurrent]]
            for name in ("raw", "workers")
        }
        self._sheet.compare(
            f"p99/p50 of workers/raw, {concurrent} at a time", tails["workers"], tails["raw"]
        )


def _turned(names: list[str], number: int) -> list[str]:
    """`names` beginning with another one in each round, so that none profits from its place."""
    first = number % len(names)
    return names[first:] + names[:first]
