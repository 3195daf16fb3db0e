"""A webhook: from the acceptance of a message to the request that tells of it."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from benchmarks.post.programs import FREE, Office
from benchmarks.report import Sheet
from benchmarks.room import PostRoom, post_room
from benchmarks.senders import TEXT
from benchmarks.spread import percentile

FULL, QUICK = 100, 5
ROUNDS = 3
DEADLINE = 30.0


class Receiver:
    """Takes requests and notes when each was there."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[float] = asyncio.Queue()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer what comes over one connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.came.put_nowait(time.perf_counter())
                sizes = [
                    line for line in head.lower().split(b"\r\n") if line.startswith(b"content-len")
                ]
                await reader.readexactly(int(sizes[0].partition(b":")[2]) if sizes else 0)
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


def measure(sheet: Sheet, *, quick: bool) -> None:
    """Measure; takes half a minute."""
    asyncio.run(_measure(sheet, QUICK if quick else FULL, 1 if quick else ROUNDS))


async def _measure(sheet: Sheet, count: int, rounds: int) -> None:
    receiver = Receiver()
    server = await asyncio.start_server(receiver.take, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    more = FREE | {"POSTROOM_EGRESS_ALLOW_PRIVATE": f"127.0.0.1:{port}"}
    async with server, AsyncExitStack() as stack:
        opened = post_room(more=more)
        room = await asyncio.to_thread(opened.__enter__)
        stack.push_async_callback(asyncio.to_thread, opened.__exit__, None, None, None)
        found = await _told(room, receiver, f"http://127.0.0.1:{port}/mail", count, rounds)
    for share in (0.5, 0.99):
        values = [1000 * percentile(took, share) for took in found]
        sheet.add(f"webhook: acceptance to request p{100 * share:.0f}", values, "ms")
    sheet.note(
        "Webhook: from the answer to POST /v1/messages to the head of the request, one message at a time; 0 where the "
        "request was there before the answer."
    )


async def _told(
    room: PostRoom, receiver: Receiver, url: str, count: int, rounds: int
) -> list[list[float]]:
    async with AsyncExitStack() as stack:
        office = Office(room, stack)
        await office.open()
        (sender,) = await office.programs("sender", 1)
        me = (await office.call("GET", "/v1/me"))["uid"]
        await office.call("POST", "/v1/webhooks", {"url": url})
        own = await office.connection(sender.key)
        found = []
        for _ in range(rounds):
            took = []
            for _ in range(count):
                await own.call("POST", "/v1/messages", {"to": me, "text": TEXT})
                accepted = time.perf_counter()
                async with asyncio.timeout(DEADLINE):
                    took.append(max(0.0, await receiver.came.get() - accepted))
            found.append(took)
    return found
