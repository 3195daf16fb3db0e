"""What comes between two steps of a task: each of these lost or doubled something once."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from a2a.server.agent_execution import RequestContext
from a2a.server.tasks import TaskUpdater
from a2a.types import Task, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent
from a2a.utils.errors import InternalError

from library.agents import Agent, asks, text, waits
from library.front import artifacts, message
from library.handling.handlers import BY_US, kinds
from postroom_a2a.sdk.handling import MemoryTaskStore

pytestmark = pytest.mark.anyio

CANCELED = TaskState.TASK_STATE_CANCELED
COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED


async def settled() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


class Store(MemoryTaskStore):
    """Fails to read, or waits before it saves, when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = -1
        self.slow = False
        self.saving = asyncio.Event()
        self.gate = asyncio.Event()

    async def get(self, task_id: str, context: Any) -> Task | None:
        self.reads -= 1
        if self.reads == 0:
            raise OSError("no answer from the store")
        return await super().get(task_id, context)

    async def save(self, task: Task, context: Any) -> None:
        if self.slow:
            self.saving.set()
            await self.gate.wait()
        await super().save(task, context)


@pytest.mark.requirement("core-sdk-client")
async def test_a_store_that_cannot_be_read_does_not_cost_the_task_what_it_has() -> None:
    async def work(agent: Agent, context: RequestContext, queue: Any, updater: TaskUpdater) -> None:
        if context.current_task is None:
            await updater.add_artifact(text("kept"), artifact_id="a")
        await asks(agent, context, queue, updater)

    store = Store()
    async with BY_US(work, task_store=store) as desk:
        task = await desk.send("write")
        store.reads = 2
        with pytest.raises(OSError, match="no answer"):
            await desk.send(message("red", task_id=task.id))
        kept = await desk.get(task.id)
        assert artifacts(kept) == {"a": "kept"}
        assert kept.status.state == INPUT_REQUIRED
        done = await desk.send(message("red", task_id=task.id))
        assert done.status.state == COMPLETED


@pytest.mark.requirement("core-sdk-client")
async def test_who_subscribes_while_an_event_is_saved_sees_it_once() -> None:
    async def work(agent: Agent, _: Any, __: Any, updater: TaskUpdater) -> None:
        await updater.add_artifact(text("one"), artifact_id="a")
        agent.begun.set()
        await agent.gate.wait()
        await updater.add_artifact(text(" two"), artifact_id="a", append=True)
        await updater.complete()

    store = Store()
    async with BY_US(work, task_store=store) as desk:
        task = await desk.send("write", return_immediately=True)
        await desk.agent.begun.wait()
        store.slow = True
        desk.agent.gate.set()
        await store.saving.wait()
        async with aclosing(desk.subscribe(task.id)) as events:
            seen = [await anext(events)]
            store.slow = False
            store.gate.set()
            seen += [event async for event in events]
    parts = [part.text for artifact in seen[0].artifacts for part in artifact.parts]
    for event in seen[1:]:
        if isinstance(event, TaskArtifactUpdateEvent):
            parts += [part.text for part in event.artifact.parts]
    assert parts == ["one", " two"]
    assert kinds(seen)[-1] == "TaskStatusUpdateEvent"
    assert isinstance(seen[-1], TaskStatusUpdateEvent)


@pytest.mark.requirement("core-sdk-client")
async def test_a_cancel_whose_caller_goes_away_ends_the_task_all_the_same() -> None:
    class Slow(Agent):
        async def cancel(self, context: Any, event_queue: Any) -> None:
            self.canceled.append(context.task_id)
            await asyncio.Event().wait()

    async with BY_US(Slow(waits)) as desk:
        following = asyncio.create_task(desk.send("write"))
        await desk.agent.begun.wait()
        task = str(desk.agent.contexts[0].task_id)
        canceling = asyncio.create_task(desk.cancel(task))
        await settled()
        assert desk.agent.canceled == [task]
        canceling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await canceling
        assert (await following).status.state == CANCELED
        assert (await desk.get(task)).status.state == CANCELED
        await settled()
        assert desk.handler.running == 0


@pytest.mark.requirement("core-sdk-client")
async def test_an_agent_that_cancels_itself_has_failed() -> None:
    async def work(*_: Any) -> None:
        raise asyncio.CancelledError

    async with BY_US(work) as desk:
        with pytest.raises(InternalError):
            await desk.send("write")
        task = str(desk.agent.contexts[0].task_id)
        assert (await desk.get(task)).status.state == FAILED
        await settled()
        assert desk.handler.running == 0
