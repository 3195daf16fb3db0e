"""Two handlers over one store, without the owners of `ReplicaOperations`: the store alone decides between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from a2a.server.agent_execution import RequestContext
from a2a.server.tasks import TaskUpdater
from a2a.types import TaskState

from library.agents import Agent, text
from library.handling.handlers import BY_US, Desk
from library.nats.streams import jetstream
from postroom_a2a.sdk.taskstore import KvTaskStore

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("core-sdk-client")]

CANCELED = TaskState.TASK_STATE_CANCELED


async def pieces(agent: Agent, _: RequestContext, __: Any, updater: TaskUpdater) -> None:
    """Adds artifacts for ever, with a breath between two: nothing else could write to a store that never rests."""
    number = 0
    while True:
        number += 1
        await asyncio.sleep(0.002)
        await updater.add_artifact(text(str(number)), artifact_id="a")
        agent.begun.set()


async def one_more(agent: Agent, _: RequestContext, __: Any, updater: TaskUpdater) -> None:
    """Says one more thing when the test lets it, and would go on."""
    agent.begun.set()
    await agent.gate.wait()
    await updater.add_artifact(text("more"), artifact_id="a")
    await asyncio.Event().wait()


@asynccontextmanager
async def two(folder: Path, work: Any) -> AsyncGenerator[tuple[Desk, Desk]]:
    async with (
        jetstream(folder) as (js, _),
        BY_US(work, task_store=await KvTaskStore.open(js)) as one,
        BY_US(work, task_store=await KvTaskStore.open(js)) as other,
    ):
        other.user = one.user
        yield one, other


async def test_a_cancel_against_concurrent_saves_of_another_handler_is_kept(tmp_path: Path):
    """SDK 1.3.0, SQLite: both writers got the same version number, and the cancel was lost."""
    async with two(tmp_path, pieces) as (one, other):
        for _ in range(5):
            one.agent.begun.clear()
            sending = asyncio.create_task(one.send("go"))
            await one.agent.begun.wait()
            task = str(one.agent.contexts[-1].task_id)
            assert (await other.cancel(task)).status.state == CANCELED
            assert (await sending).status.state == CANCELED
            assert (await one.get(task)).status.state == CANCELED


async def test_an_agent_whose_task_another_handler_has_canceled_is_stopped_at_its_next_event(
    tmp_path: Path,
):
    async with two(tmp_path, one_more) as (one, other):
        sending = asyncio.create_task(one.send("go"))
        streaming = asyncio.create_task(one.stream("go"))
        await one.agent.begun.wait()
        async with asyncio.timeout(30):
            while len(one.agent.contexts) < 2:  # noqa: ASYNC110 (an agent has no event for it)
                await asyncio.sleep(0.005)
        for context in one.agent.contexts:
            assert (await other.cancel(str(context.task_id))).status.state == CANCELED
        one.agent.gate.set()
        assert (await sending).status.state == CANCELED
        assert (await streaming)[-1].status.state == CANCELED
        async with asyncio.timeout(30):
            while one.handler.running:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert len(one.agent.stopped) == 2
        for context in one.agent.contexts:
            assert one.handler.at_work(str(context.task_id)) is None
