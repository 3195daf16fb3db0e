"""CPU time of request handlers alone: an agent that answers at once, called in its own process, no network.

The SDK looks at `OTEL_INSTRUMENTATION_A2A_SDK_ENABLED` when it is imported: set it before the process begins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from a2a.helpers import new_task_from_user_message, new_text_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskState,
)

from postroom_a2a.sdk.handling import AgentRequestHandler

CALLS = 2000
WARM = 100

Say = Callable[[RequestContext, EventQueue], Awaitable[None]]


async def message(context: RequestContext, queue: EventQueue) -> None:
    """One Message."""
    await queue.enqueue_event(
        new_text_message("hello", task_id=context.task_id, context_id=context.context_id)
    )


async def task(context: RequestContext, queue: EventQueue) -> None:
    """One Task, completed."""
    begun = new_task_from_user_message(_said(context))
    begun.status.state = TaskState.TASK_STATE_COMPLETED
    await queue.enqueue_event(begun)


async def steps(context: RequestContext, queue: EventQueue) -> None:
    """A Task, working, an artifact, completed."""
    await queue.enqueue_event(new_task_from_user_message(_said(context)))
    updater = TaskUpdater(queue, context.task_id or "", context.context_id or "")
    await updater.start_work()
    await updater.add_artifact([Part(text="hello")], artifact_id="a")
    await updater.complete()


ANSWERS: dict[str, Say] = {"message": message, "task": task, "steps": steps}


def _said(context: RequestContext) -> Message:
    if context.message is None:
        raise ValueError("a request without a message")
    return context.message


class Agent(AgentExecutor):
    """Answers in one way."""

    def __init__(self, say: Say) -> None:
        self.say = say

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Answer."""
        await self.say(context, event_queue)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Never called."""
        raise NotImplementedError


class Silent:
    """The same agent without a handler: what the agent's own events cost, which no handler can save."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def on_message_send(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> Task | Message:
        """Run the agent, keep its last event."""
        queue = _Dropped()
        await self.agent.execute(RequestContext(context, params), queue)
        return queue.last

    async def aclose(self) -> None:
        """Nothing is open."""


class _Dropped(EventQueue):
    last: Any = None

    async def enqueue_event(self, event: Any) -> None:
        self.last = event


CARD = AgentCard(name="bench", version="1", capabilities=AgentCapabilities(streaming=True))

HANDLERS: dict[str, Callable[[Agent], Any]] = {
    "sdk": lambda agent: DefaultRequestHandler(agent, InMemoryTaskStore(), CARD),
    "postroom": lambda agent: AgentRequestHandler(agent, CARD),
    "agent alone": Silent,
}


def request() -> SendMessageRequest:
    return SendMessageRequest(
        message=Message(message_id="m", role=Role.ROLE_USER, parts=[Part(text="hello there")])
    )


async def cpu_per_call(handler: str, answer: str, *, calls: int = CALLS) -> float:
    """CPU seconds of one unary call, with the agent's own; one call after the other.

    Args:
        handler: a key of `HANDLERS`.
        answer: a key of `ANSWERS`.
        calls: that are measured, after some that are not.
    """
    made = HANDLERS[handler](Agent(ANSWERS[answer]))
    try:
        for _ in range(WARM):
            await made.on_message_send(request(), ServerCallContext())
        asked = [(request(), ServerCallContext()) for _ in range(calls)]
        begun = time.process_time()
        for params, context in asked:
            await made.on_message_send(params, context)
        return (time.process_time() - begun) / calls
    finally:
        await made.aclose()


async def cpu_per_stream(handler: str, answer: str, *, calls: int = CALLS) -> float:
    """CPU seconds of one streamed call; not for "agent alone"."""
    made = HANDLERS[handler](Agent(ANSWERS[answer]))
    try:
        asked = [(request(), ServerCallContext()) for _ in range(WARM + calls)]
        begun = 0.0
        for number, (params, context) in enumerate(asked):
            if number == WARM:
                begun = time.process_time()
            async for _ in made.on_message_send_stream(params, context):
                pass
        return (time.process_time() - begun) / calls
    finally:
        await made.aclose()


def main() -> None:
    """Print microseconds per call."""
    for answer in ANSWERS:
        for handler in HANDLERS:
            calls = 500 if handler == "sdk" else CALLS * 2
            unary = min(asyncio.run(cpu_per_call(handler, answer, calls=calls)) for _ in range(3))
            print(f"{answer:8} {handler:12} unary  {unary * 1e6:8.1f} us")
            if handler != "agent alone":
                stream = min(
                    asyncio.run(cpu_per_stream(handler, answer, calls=calls)) for _ in range(3)
                )
                print(f"{answer:8} {handler:12} stream {stream * 1e6:8.1f} us")


if __name__ == "__main__":
    main()
