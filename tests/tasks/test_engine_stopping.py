"""A worker that is stopped on purpose loses no task: not one that was answered, nor one that nobody has reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from postroom.tasks.execution import Execution
from postroom.tasks.log import AttemptLost
from postroom_a2a.messages import text_message
from postroom_a2a.task_state import TaskState
from tests.rig import Rig, running_bus
from tests.tasks.enginedesk import Desk, done, running_desk

pytestmark = pytest.mark.anyio

THIS_ONE = text_message("m", "this one")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncGenerator[Rig]:
    async with running_bus(tmp_path) as found:
        yield found


@asynccontextmanager
async def asking_and_busy(rig: Rig) -> AsyncGenerator[tuple[Desk, str, str, asyncio.Event]]:
    """A worker with one task that has asked and one that it is at, until `stop` is set: then its agent is gone."""
    stop = asyncio.Event()

    async def script(execution: Execution) -> None:
        if len(desk.executor.begun) == 1:
            await execution.say(TaskState.INPUT_REQUIRED, "which one?")
            return
        await stop.wait()
        desk.executor.gone = True
        raise AttemptLost("the agent ended: exit code 0")

    async with running_desk(rig, script) as desk:
        asking = await desk.ask("asks")
        await desk.log.until(asking, TaskState.INPUT_REQUIRED)
        busy = await desk.ask("is worked on")
        await desk.log.until(busy, TaskState.WORKING)
        yield desk, asking, busy, stop


async def stopped(desk: Desk, stop: asyncio.Event) -> None:
    desk.engine.stop()
    stop.set()
    await desk.over()
    await desk.engine.settled(10)


async def assert_next_start_does_all(rig: Rig, first: Desk, asking: str, busy: str) -> None:
    async with running_desk(rig, bus=first.bus, alice=first.alice, recover=(asking, busy)) as next_:
        for task, attempt in ((asking, 2), (busy, 2)):
            last = await next_.log.until(task, TaskState.COMPLETED)
            assert (last.attempt, last.lost) == (attempt, 0)


@pytest.mark.requirement("task-queue-keeps-order")
async def test_a_task_answered_while_the_worker_is_at_another_outlives_a_stop(rig: Rig) -> None:
    async with asking_and_busy(rig) as (desk, asking, busy, stop):
        await desk.engine.answer(asking, desk.alice, THIS_ONE)
        await stopped(desk, stop)

    await assert_next_start_does_all(rig, desk, asking, busy)


@pytest.mark.requirement("task-queue-keeps-order")
async def test_an_answer_that_comes_in_the_moment_of_stopping_is_kept(rig: Rig) -> None:
    async with asking_and_busy(rig) as (desk, asking, busy, stop):
        await stopped(desk, stop)
        await desk.engine.answer(asking, desk.alice, THIS_ONE)

    await assert_next_start_does_all(rig, desk, asking, busy)


@pytest.mark.requirement("task-queue-keeps-order")
async def test_what_a_start_has_recovered_and_not_reached_outlives_its_stop(rig: Rig) -> None:
    async def for_ever(_: Execution) -> None:
        await asyncio.get_running_loop().create_future()

    async with running_desk(rig, for_ever) as killed:
        task = await killed.ask("do it")
        await killed.log.until(task, TaskState.WORKING)

    recovered = running_desk(rig, bus=killed.bus, alice=killed.alice, recover=(task,), here=False)
    async with recovered as second:
        second.engine.stop()
        second.executor.gone = True
        second.executor.here.set()
        await second.over()
        await second.engine.settled(10)

    async with running_desk(
        rig, done, bus=killed.bus, alice=killed.alice, recover=(task,)
    ) as third:
        last = await third.log.until(task, TaskState.COMPLETED)
        assert (last.attempt, last.lost) == (2, 1)
