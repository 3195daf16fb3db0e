"""A server of the durable binding in a process of its own: `python -m durableworker <url> <journal>`.

It writes each request that it begins to the journal, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator

import nats

from postroom_a2a.durable.server import DurableServer
from postroom_a2a.operations import Call

SUBJECT = "a2a.agent.echo.requests"


class Journalled:
    """An agent that answers `quick ...` at once and never ends anything else."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def streams(self, method: str) -> bool:
        return method == "message/stream"

    def begins(self, method: str) -> bool:
        return True

    async def answer(self, call: Call) -> bytes:
        text = self._begin(call)
        if not text.startswith("quick"):
            await asyncio.Event().wait()
        return b'"' + text.encode() + b'"'

    async def stream(self, call: Call) -> AsyncGenerator[bytes, None]:
        self._begin(call)
        for number in range(3):
            yield str(number).encode()
        await asyncio.Event().wait()

    def _begin(self, call: Call) -> str:
        text = call.params["message"]["parts"][0]["text"]
        os.write(self._file, f"{text} {call.task_id}\n".encode())
        return text


async def main(url: str, journal: str) -> None:
    client = await nats.connect(url, reconnect_time_wait=0.05, max_reconnect_attempts=-1)
    server = DurableServer(client, SUBJECT, Journalled(journal), ack_wait=1.0, grace=0.5, drain=0.2)
    async with server:
        os.write(1, b"ready\n")
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
