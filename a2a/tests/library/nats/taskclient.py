"""A client of `taskworker` in a process of its own: `python taskclient.py <url> <journal> <name> <calls>`.

It makes calls of all kinds, some at a time, appends to the journal (one JSON object a line) what it sends and what
each call gave, and ends when all have ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from dataclasses import dataclass
from typing import Any

import nats

from library.nats.taskworker import SUBJECT
from postroom_a2a.binding.frames import Request, Response
from postroom_a2a.durable.client import DurableCaller
from postroom_a2a.errors import PostroomError
from postroom_a2a.live.calling import new_id

AT_A_TIME = 12
KINDS = ("work 0", "work 0", "work 20", "work 300", "work 1500", "step 3", "step 60", "ask 0")


@dataclass
class Customer:
    """What one process asks for."""

    caller: DurableCaller
    journal: int
    name: str
    rng: random.Random

    def note(self, **said: Any) -> None:
        os.write(self.journal, json.dumps(said).encode() + b"\n")

    async def order(self, number: int) -> None:
        key, kind = f"{self.name}-{number}", self.rng.choice(KINDS)
        streamed = kind.startswith("step") or self.rng.random() < 0.2
        at_once = not streamed and self.rng.random() < 0.2
        message = {"messageId": key, "role": "ROLE_USER", "parts": [{"text": f"{key} {kind}"}]}
        params: dict[str, Any] = {"message": message}
        if at_once:
            params["configuration"] = {"returnImmediately": True}
        method = "SendStreamingMessage" if streamed else "SendMessage"
        request = Request(new_id(), method, params)
        self.note(do="sent", key=key, id=request.id, kind=kind, streamed=streamed, at_once=at_once)
        timeout = self.rng.choice((2.0, 30.0, 30.0, 30.0))
        results: list[Any] = []
        try:
            if streamed:
                async for response in self.caller.stream(request, timeout=timeout):
                    results.append(_said(response))  # noqa: PERF401 - what came before an error counts
            else:
                results.append(_said(await self.caller.call(request, timeout=timeout)))
        except PostroomError as error:
            self.note(do="error", key=key, error=error.code, text=str(error), results=results)
            return
        self.note(do="answer", key=key, results=results)
        if self.rng.random() < 0.2 and isinstance(results[0], dict) and "task" in results[0]:
            await self.look(results[0]["task"]["id"])

    async def look(self, task_id: str) -> None:
        """Read the task, or cancel it."""
        method = self.rng.choice(("GetTask", "CancelTask"))
        request = Request(new_id(), method, {"id": task_id})
        try:
            response = await self.caller.call(request, timeout=20)
        except PostroomError as error:
            self.note(do="looked", error=error.code)
            return
        found = response.result["id"] if response.error is None else ""
        self.note(do="looked", asked=task_id, found=found)


def _said(response: Response) -> Any:
    return response.result if response.error is None else response.error.message


async def main(url: str, journal: str, name: str, calls: str) -> None:
    client = await nats.connect(url, reconnect_time_wait=0.05, max_reconnect_attempts=-1)
    caller = DurableCaller(client, SUBJECT, idle=40.0)
    file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    customer = Customer(caller, file, name, random.Random(name))
    places = asyncio.Semaphore(AT_A_TIME)

    async def one(number: int) -> None:
        async with places:
            await customer.order(number)

    os.write(1, b"ready\n")
    async with asyncio.TaskGroup() as group:
        for number in range(int(calls)):
            group.create_task(one(number))
    await caller.close()
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
