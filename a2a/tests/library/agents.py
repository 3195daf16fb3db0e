"""Agents as anybody writes them with the A2A SDK; they know nothing of what runs them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import Part, Task

Work = Callable[["Agent", RequestContext, EventQueue, TaskUpdater], Awaitable[None]]


class Agent(AgentExecutor):
    """Begins a task as the SDK wants it, then does what the test says."""

    def __init__(self, work: Work, *, quiet: bool = False) -> None:
        self.work = work
        self.quiet = quiet
        self.asked: list[str] = []
        self.contexts: list[RequestContext] = []
        self.shown: list[Task | None] = []
        self.canceled: list[str] = []
        self.stopped: list[str] = []
        self.begun = asyncio.Event()
        self.gate = asyncio.Event()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.message is not None
        assert context.task_id is not None
        assert context.context_id is not None
        self.asked.append(context.get_user_input())
        self.contexts.append(context)
        # A copy: the SDK's own handler goes on changing the one that it shows.
        self.shown.append(
            None
            if context.current_task is None
            else Task.FromString(context.current_task.SerializeToString())
        )
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if not self.quiet:
            if context.current_task is None:
                await event_queue.enqueue_event(new_task_from_user_message(context.message))
            await updater.start_work()
        try:
            await self.work(self, context, event_queue, updater)
        except asyncio.CancelledError:
            self.stopped.append(context.task_id)
            raise

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        assert context.task_id is not None
        assert context.context_id is not None
        self.canceled.append(context.task_id)
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def text(*texts: str) -> list[Part]:
    return [Part(text=each) for each in texts]


async def chunks(_: Agent, context: RequestContext, __: Any, updater: TaskUpdater) -> None:
    """An artifact in two pieces, and an end with a word."""
    await updater.add_artifact(text("one"), artifact_id="a", name="poem", append=False)
    await updater.add_artifact(text(" two"), artifact_id="a", append=True, last_chunk=True)
    await updater.complete(updater.new_agent_message(text("done")))


async def asks(_: Agent, context: RequestContext, __: Any, updater: TaskUpdater) -> None:
    """Asks once; the answer is its result."""
    if context.current_task is None:
        await updater.requires_input(updater.new_agent_message(text("which one?")))
        return
    await updater.add_artifact(text(context.get_user_input()), artifact_id="a")
    await updater.complete()


async def waits(agent: Agent, _: Any, __: Any, updater: TaskUpdater) -> None:
    """Completes when the test lets it."""
    agent.begun.set()
    await agent.gate.wait()
    await updater.complete()


async def raises(_: Any, __: Any, ___: Any, ____: Any) -> None:
    raise ValueError("no such poem")


async def returns(_: Any, __: Any, ___: Any, ____: Any) -> None:
    return


async def answers(_: Any, context: RequestContext, queue: EventQueue, __: Any) -> None:
    """One Message and no task; for a quiet agent."""
    await queue.enqueue_event(
        new_text_message("hello", task_id=context.task_id, context_id=context.context_id)
    )
