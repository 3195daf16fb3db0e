"""A cancel ends a task once, whatever its agent does at that moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from postroom.tasks.execution import Execution
from postroom.tasks.log import AttemptLost
from postroom_a2a.task_state import TaskState
from tests.rig import Rig, running_bus
from tests.tasks.enginedesk import Desk, Script, done, running_desk

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("task-queue-keeps-order")]


@pytest.fixture(scope="module")
async def rig(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Rig]:
    async with running_bus(tmp_path_factory.mktemp("bus")) as found:
        yield found


async def canceled(rig: Rig, does: Script, *, cancels: int = 1) -> tuple[Desk, str]:
    """A task that is canceled, and whose agent then does this."""
    told = asyncio.Event()

    async def script(execution: Execution) -> None:
        await told.wait()
        await does(execution)

    async with running_desk(rig, script) as desk:

        async def tell(execution: Execution) -> str:
            told.set()
            await execution.settled.wait() if does in (asks, done) else None
            return ""

        desk.executor.cancel = tell
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.WORKING)
        async with asyncio.timeout(30):
            while not desk.executor.begun:  # noqa: ASYNC110 (begun by the engine, on its next turns)
                await asyncio.sleep(0)
            cancel = [desk.engine.cancel(task, desk.alice, "enough") for _ in range(cancels)]
            await asyncio.gather(*cancel)
    return desk, task


async def asks(execution: Execution) -> None:
    await execution.say(TaskState.INPUT_REQUIRED, "are you sure?")


async def dies(_: Execution) -> None:
    raise AttemptLost("the agent ended: exit code 1")


async def ends(_: Execution) -> None:
    return


async def test_a_task_whose_agent_ends_as_it_is_canceled_is_canceled_once(rig: Rig) -> None:
    for does in (dies, ends):
        desk, task = await canceled(rig, does)

        assert await desk.log.states(task) == ["working", "canceled"]
        assert await desk.text(task) == "enough"
        assert await desk.log.stored(task) == 2


async def test_a_task_whose_agent_asks_as_it_is_canceled_is_canceled(rig: Rig) -> None:
    desk, task = await canceled(rig, asks)

    assert await desk.log.states(task) == ["working", "input-required", "canceled"]
    assert desk.executor.forgotten == [task]


async def test_a_result_that_was_stored_before_the_cancel_stays_the_one_end(rig: Rig) -> None:
    desk, task = await canceled(rig, done)

    assert await desk.log.states(task) == ["working", "completed"]


async def test_a_task_that_is_canceled_by_several_at_once_ends_once(rig: Rig) -> None:
    desk, task = await canceled(rig, dies, cancels=5)

    assert await desk.log.states(task) == ["working", "canceled"]
    assert await desk.log.stored(task) == 2
