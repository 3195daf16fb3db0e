"""The client of many open waits, a process of its own (URL TOKEN COUNT SECONDS ID...).

It opens COUNT connections, each with a request that waits for one of the tasks, and says `open`. At the end of its
standard input it says how many were answered with which status.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import sys
from urllib.parse import urlsplit

AT_ONCE = 32
"""Connections that are being made at a time; a listener's backlog is short."""


async def main(url: str, token: str, count: int, seconds: float, tasks: list[str]) -> None:
    """Open them and hold them."""
    place = urlsplit(url)
    statuses: collections.Counter[str] = collections.Counter()
    gate = asyncio.Semaphore(AT_ONCE)
    held: list[asyncio.Task[None]] = []

    async def wait(task: str) -> None:
        async with gate:
            reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=4096)
            path = f"/v1/tasks/{task}?wait=final&timeout={seconds:g}"
            head = f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
            writer.write(head.encode())
        held.append(asyncio.create_task(answer(reader)))
        kept.append(writer)

    async def answer(reader: asyncio.StreamReader) -> None:
        line = (await reader.readline()).decode("ascii", errors="replace").split()
        statuses[line[1] if len(line) > 1 else "cut"] += 1

    kept: list[asyncio.StreamWriter] = []
    turns = itertools.islice(itertools.cycle(tasks), count)
    await asyncio.gather(*map(wait, turns))
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    print(*(f"{status}:{number}" for status, number in sorted(statuses.items())), flush=True)
    for task in held:
        task.cancel()
    for writer in kept:
        writer.transport.abort()


if __name__ == "__main__":
    _, url, token, count, seconds, *tasks = sys.argv
    asyncio.run(main(url, token, int(count), float(seconds), tasks))
