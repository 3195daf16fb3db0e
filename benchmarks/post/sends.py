"""Accepted sends: to who is open to all, to who is reached by a grant, and across organisations, beside two floors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing

from nats.js import JetStreamContext

from benchmarks.bursts import Burst, burst
from benchmarks.buses import PLAIN, TIMEOUT, Buses, folded, plain_stream
from benchmarks.connection import Connection
from benchmarks.post.mailbox import Mailbox
from benchmarks.post.programs import FREE, Office, open_again
from benchmarks.processes import processor_time
from benchmarks.report import Sheet
from benchmarks.room import PostRoom, post_room
from benchmarks.senders import TEXT, PlainSender, Sender

FULL = {1: 100, 16: 320, 64: 320}
QUICK = {1: 5, 4: 12}
"""Sends of one turn, by how many senders there are."""

ROUNDS = 4

TURN = 2.0
"""Seconds after which a turn is cut short."""

ORG = "acme"

MOST = 1.15
"""The longest that a granted send may take, in open ones."""

NOTES = (
    "open, granted, across: POST /v1/messages by so many programs with keys of their own; 201 says that it is on disk.",
    "granted: the recipient is reached by grants alone.",
    "across: it is in another organisation; the post office carries the message there behind, on the same cores.",
    "raw: nats-py's acknowledged publish into a stream that nobody follows.",
    "mailbox: 40 lines of SQLite, synchronous=FULL, in the process that sends; without HTTP, keys or receipts.",
    "plane: processor time of the control plane for each send and for what follows it, whatever else runs.",
    "No limits of callers, and none for pairs: the work is measured.",
    f"granted/open: how long a granted send takes in open ones of the same round; at most {MOST}.",
)


class ProgramSender:
    """Implements `senders.Sender`: each of the programs has one send under way at a time."""

    def __init__(self, connections: Sequence[Connection], to: str) -> None:
        self._connections = connections
        self._to = to
        self._free: asyncio.LifoQueue[Connection] = asyncio.LifoQueue()
        for connection in connections:
            self._free.put_nowait(connection)

    async def prepare(self, count: int) -> Sequence[int]:
        """As `Sender.prepare`."""
        await open_again(self._connections)
        return range(count)

    async def send(self, item: int) -> None:  # noqa: ARG002
        """As `Sender.send`."""
        connection = await self._free.get()
        body = {"to": self._to, "text": TEXT, "expects_reply": False}
        try:
            await connection.call("POST", "/v1/messages", body)
        finally:
            self._free.put_nowait(connection)


def measure(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes about a minute."""
    with post_room(more=FREE) as room:
        room.run("org", "create", ORG)
        asyncio.run(_measure(sheet, room, QUICK if quick else FULL, 1 if quick else ROUNDS))


async def _measure(sheet: Sheet, room: PostRoom, plan: dict[int, int], rounds: int) -> None:
    async with AsyncExitStack() as stack:
        office = Office(room, stack)
        await office.open()
        stream = (await Buses(stack, room).core()).jetstream(timeout=TIMEOUT)
        await stream.add_stream(plain_stream())
        mailbox = stack.enter_context(closing(Mailbox(room.state / "mailbox.sqlite3", TEXT)))
        ways: dict[str, Sender] = {
            "raw": PlainSender(stream, PLAIN, "0" * 32),
            "mailbox": mailbox,
            **await _programs(office, max(plan)),
        }
        found: dict[tuple[str, int], list[Burst]] = {}
        spent: dict[tuple[str, int], list[float]] = {}
        for way in ways.values():
            await burst(way, 10, 2, TURN)  # connections, caches and code paths are warm then
        for number in range(rounds):
            for senders, count in plan.items():
                for name in sorted(ways, reverse=bool(number % 2)):
                    await _rest(stream)
                    before = processor_time(office.plane)
                    done = await burst(ways[name], count, senders, TURN)
                    await _rest(stream)
                    used = 1000 * (processor_time(office.plane) - before) / len(done.latencies)
                    found.setdefault((name, senders), []).append(done)
                    spent.setdefault((name, senders), []).append(used)
        for senders in plan:
            _tell(sheet, found, list(ways), senders)
            _tell_spent(sheet, spent, senders)
    for text in NOTES:
        sheet.note(text)


async def _programs(office: Office, most: int) -> dict[str, Sender]:
    senders = await office.programs("sender", most)
    (everybodys,) = await office.programs("open", 1)
    (closed,) = await office.programs("closed", 1)
    (other,) = await office.programs("other", 1, ORG)
    await office.call("PUT", "/v1/grants/only", {"grants_only": True, "agent": closed.uid})
    await office.let_in(closed, senders)
    await office.let_in(other, senders, ORG)
    connections = [await office.connection(each.key) for each in senders]
    named = {"open": everybodys, "granted": closed, "across": other}
    return {name: ProgramSender(connections, each.uid) for name, each in named.items()}


async def _rest(stream: JetStreamContext) -> None:
    """Wait until what was sent is folded, so that the next turn does not pay for it."""
    await folded(stream, ["INBOX"])


def _tell(
    sheet: Sheet, found: dict[tuple[str, int], list[Burst]], names: list[str], senders: int
) -> None:
    for name in names:
        bursts, title = found[name, senders], f"{senders} senders, {name}"
        sheet.add(f"{title}: rate", [each.rate for each in bursts], "/s")
        sheet.add(f"{title}: p50", [each.latency(0.5) for each in bursts], "ms")
        sheet.add(f"{title}: p99", [each.latency(0.99) for each in bursts], "ms")
    for name in ("granted", "across"):
        took = [[1 / each.rate for each in found[way, senders]] for way in (name, "open")]
        sheet.compare(f"{name}/open, {senders} senders", *took)


def _tell_spent(sheet: Sheet, spent: dict[tuple[str, int], list[float]], senders: int) -> None:
    for name in ("open", "granted", "across"):
        sheet.add(f"{senders} senders, {name}: plane", spent[name, senders], "ms")
    for name in ("granted", "across"):
        title = f"{name}/open, {senders} senders: plane"
        sheet.compare(title, spent[name, senders], spent["open", senders])
