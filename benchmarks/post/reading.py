"""A thousand messages that wait for an agent: read and acknowledged."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack

from benchmarks.post.programs import FREE, Office, Program
from benchmarks.processes import processor_time
from benchmarks.report import Sheet
from benchmarks.room import PostRoom, post_room
from benchmarks.senders import TEXT

FULL, QUICK = 1000, 20
ROUNDS = 3
AT_ONCE = 16

PAGE = 500
"""Messages of one page, and of one acknowledgement: as many as there may be."""


def measure(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes half a minute."""
    with post_room(more=FREE) as room:
        asyncio.run(_measure(sheet, room, QUICK if quick else FULL, 1 if quick else ROUNDS))


async def _measure(sheet: Sheet, room: PostRoom, count: int, rounds: int) -> None:
    took, spent = [], []
    async with AsyncExitStack() as stack:
        office = Office(room, stack)
        await office.open()
        (sender,) = await office.programs("sender", 1)
        for number in range(rounds):
            (reader,) = await office.programs(f"reader{number}-", 1)
            await _sent(office, sender, reader, count)
            own = await office.connection(reader.key)
            before, begin = processor_time(office.plane), time.perf_counter()
            read, after = 0, 0
            while True:
                path = f"/v1/inbox?limit={PAGE}&after={after}&unread=true"
                page = json.loads(await own.call("GET", path))
                if not (ids := [mail["id"] for mail in page["messages"]]):
                    break
                await own.call("POST", "/v1/inbox/ack", {"ids": ids, "state": "seen"})
                read, after = read + len(ids), page["next"]
            took.append(time.perf_counter() - begin)
            spent.append(processor_time(office.plane) - before)
            if read != count:
                raise RuntimeError(f"{read} of {count} messages were read")
    sheet.add(f"{count} waiting messages read and acknowledged", took, "s")
    sheet.add(f"{count} waiting messages: plane", spent, "s")
    sheet.note(f"Reading: pages of {PAGE} by GET /v1/inbox, each acknowledged as seen at once.")


async def _sent(office: Office, sender: Program, reader: Program, count: int) -> None:
    numbers = iter(range(count))
    body = {"to": reader.uid, "text": TEXT, "expects_reply": False}

    async def send() -> None:
        connection = await office.connection(sender.key)
        for _ in numbers:
            await connection.call("POST", "/v1/messages", body)

    await asyncio.gather(*(send() for _ in range(AT_ONCE)))
