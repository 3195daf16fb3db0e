"""One replica of an agent of the SDK, over HTTP, in a process of its own.

`python -m library.faults.replica NATS_URL FOLDER`; prints the port that it serves, and ends with its standard input.

A message is `KIND NAME`. What is begun and ended is appended to `FOLDER/journal`.

    work      is done at once
    ask       asks once, and is done with the answer
    hold      is done when the file go-NAME is there
    stubborn  the same, but a cancel does not stop it: then comes an artifact, and "completed" right behind it
    pausing   the same with an await between the two
    steps     adds artifacts until go-NAME is there
    say       answers with a message, and no task
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater

from a2a import types
from postroom_a2a import AgentRequestHandler, KvTaskStore, SdkOperations, connect
from postroom_a2a.http import A2AApplication, Asked, Exchange, Front
from postroom_a2a.operations import Operations
from postroom_a2a.sdk.replicas import ReplicaOperations

CARD = types.AgentCard(
    name="desk", capabilities=types.AgentCapabilities(streaming=True, push_notifications=False)
)


class Scripted(AgentExecutor):
    """Does what its message says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = os.open(folder / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, *words: object) -> None:
        os.write(self._file, f"{' '.join(map(str, words))} {os.getpid()}\n".encode())

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        kind, name = context.get_user_input().split()
        task, thread = str(context.task_id), str(context.context_id)
        updater = TaskUpdater(event_queue, task, thread)
        self.note("begin", name)
        if kind == "say":
            await event_queue.enqueue_event(new_text_message(name, context_id=thread))
            return
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        await updater.start_work()
        try:
            if kind == "ask" and context.current_task is None:
                await updater.requires_input(new_text_message("which?"))
                return
            await self._work(kind, name, updater)
        except asyncio.CancelledError:
            self.note("stopped", name)
            raise
        self.note("end", name)

    async def _work(self, kind: str, name: str, updater: TaskUpdater) -> None:
        if kind == "hold":
            await self._gate(name)
        elif kind in {"stubborn", "pausing"}:
            gate = asyncio.create_task(self._gate(name))
            while not gate.done():
                try:
                    await asyncio.shield(gate)
                except asyncio.CancelledError:
                    self.note("deaf", name)
            await updater.add_artifact([types.Part(text=name)], artifact_id="last")
            if kind == "pausing":
                await asyncio.sleep(0.05)
        elif kind == "steps":
            number = 0
            while not (self._folder / f"go-{name}").exists():
                number += 1
                await updater.add_artifact([types.Part(text=str(number))], artifact_id="a")
        else:
            await updater.add_artifact([types.Part(text=name)], artifact_id="a")
        await updater.complete(new_text_message(name))

    async def _gate(self, name: str) -> None:
        self.note("holds", name)
        while not (self._folder / f"go-{name}").exists():  # noqa: ASYNC110 (another process makes it)
            await asyncio.sleep(0.01)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.note("cancel", context.task_id)
        await TaskUpdater(event_queue, str(context.task_id), str(context.context_id)).cancel()


def application(replica: ReplicaOperations, handler: AgentRequestHandler) -> Any:
    """The agent's own address; GET tells what the process holds. A caller is whom its header names."""

    async def operations_of(_exchange: Exchange, _asked: Asked) -> Operations:
        return replica

    async def admit(exchange: Exchange) -> str:
        return exchange.header("x-caller")

    served = A2AApplication(Front(operations_of, admit))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "GET":
            held = {"runs": handler.running, "tasks": len(asyncio.all_tasks())}
            await Exchange(scope, receive, send).answer(200, json.dumps(held).encode())
        else:
            await served(scope, receive, send)

    return app


async def main(url: str, folder: str) -> None:
    connection = await connect(url)
    handler = AgentRequestHandler(Scripted(Path(folder)), CARD, await KvTaskStore.open(connection))
    async with ReplicaOperations(connection, "desk", SdkOperations(handler), grace=1.0) as replica:
        served = application(replica, handler)
        server = uvicorn.Server(uvicorn.Config(served, port=0, log_level="warning", lifespan="off"))
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        os.write(1, f"{port}\n".encode())
        await asyncio.to_thread(sys.stdin.read)
        server.should_exit = True
        await serving
    await handler.aclose()
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
