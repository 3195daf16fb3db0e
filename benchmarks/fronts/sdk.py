"""The official SDK's server over JSON-RPC, a process of its own: `python -m benchmarks.fronts.sdk STORE`.

STORE is `memory`, or the path of a new SQLite file. It prints its address, and serves until its input ends.
"""

from __future__ import annotations

import asyncio
import socket
import sys

import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskStore, TaskUpdater
from a2a.server.tasks.database_task_store import DatabaseTaskStore
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.applications import Starlette

from benchmarks.a2a.peers.agent import card

MEMORY = "memory"


class InstantExecutor(AgentExecutor):
    """Does what the worker `instant` of a post room does: a task that is taken, and completed at once with a word."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Complete the task."""
        if context.message is None or context.task_id is None or context.context_id is None:
            raise ValueError("the handler gave no message or no ids")
        await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        await updater.complete(new_text_message("done", context_id=context.context_id))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Never asked for."""
        raise NotImplementedError


async def _store(place: str) -> TaskStore:
    if place == MEMORY:
        return InMemoryTaskStore()
    store = DatabaseTaskStore(create_async_engine(f"sqlite+aiosqlite:///{place}"))
    await store.initialize()
    return store


async def main(place: str) -> None:
    """Serve."""
    with socket.create_server(("127.0.0.1", 0), backlog=2048) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        handler = DefaultRequestHandler(
            agent_executor=InstantExecutor(),
            task_store=await _store(place),
            agent_card=card("JSONRPC", url),
        )
        routes = create_jsonrpc_routes(handler, "/")
        config = uvicorn.Config(
            Starlette(routes=routes), log_level="warning", access_log=False, timeout_keep_alive=900
        )
        server = uvicorn.Server(config)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listening]))
            print(url, flush=True)
            await asyncio.to_thread(sys.stdin.read)
            server.should_exit = True


if __name__ == "__main__":
    import uvloop  # ty: ignore[import-not-found]

    uvloop.run(main(sys.argv[1]))
