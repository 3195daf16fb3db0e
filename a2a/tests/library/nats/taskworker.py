"""An agent of the SDK with its tasks in a bucket, served over JetStream in a process of its own.

`python -m taskworker <url> <journal> <seconds of ack_wait>`; it ends with its standard input.

A message is `<key> <kind> <number>`: `work` takes so many milliseconds, `step` tells that many events, `ask` asks,
`hold` never ends. What is begun and ended is appended to the journal.
"""

from __future__ import annotations

import asyncio
import os
import sys

import nats
from a2a.helpers import new_text_artifact_update_event, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater

from a2a import types
from postroom_a2a import AgentRequestHandler, JetStreamA2AServer, KvTaskStore

SUBJECT = "a2a.agent.desk.requests"


class Scripted(AgentExecutor):
    """Does what its message says."""

    def __init__(self, journal: str) -> None:
        self._file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def _note(self, *words: object) -> None:
        os.write(self._file, f"{' '.join(map(str, words))}\n".encode())

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task_id, context_id = str(context.task_id), str(context.context_id)
        key, kind, number = context.get_user_input().split()
        self._note("begin", key, task_id, os.getpid())
        task = TaskUpdater(event_queue, task_id, context_id)
        if context.current_task is None:
            status = types.TaskStatus(state=types.TaskState.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(
                types.Task(id=task_id, context_id=context_id, status=status)
            )
        await task.start_work()
        if kind == "work":
            await asyncio.sleep(int(number) / 1000)
        for step in range(int(number) if kind == "step" else 0):
            await event_queue.enqueue_event(
                new_text_artifact_update_event(
                    task_id, context_id, f"step {step}", f"{key} {step}", artifact_id=f"s{step}"
                )
            )
        if kind == "hold":
            await asyncio.Event().wait()
        if kind == "ask":
            await task.requires_input(new_text_message(key, role=types.Role.ROLE_AGENT))
        else:
            await task.complete(new_text_message(key, role=types.Role.ROLE_AGENT))
        self._note("end", key, task_id, os.getpid())

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        await TaskUpdater(event_queue, str(context.task_id), str(context.context_id)).cancel()


async def main(url: str, journal: str, ack_wait: str, concurrency: str = "16") -> None:
    client = await nats.connect(url, reconnect_time_wait=0.05, max_reconnect_attempts=-1)
    card = types.AgentCard(
        name="desk", capabilities=types.AgentCapabilities(streaming=True, push_notifications=False)
    )
    handler = AgentRequestHandler(Scripted(journal), card, await KvTaskStore.open(client))
    server = JetStreamA2AServer(
        client,
        subject=SUBJECT,
        handler=handler,
        ack_wait=float(ack_wait),
        concurrency=int(concurrency),
        grace=0.5,
        drain=0.3,
    )
    async with server:
        os.write(1, b"ready\n")
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await handler.aclose()
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
