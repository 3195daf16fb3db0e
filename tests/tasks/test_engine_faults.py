"""What could leave a task open with nobody working on it: writes cut short, no room, cancels between two steps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from postroom.bus.nats import NatsBus
from postroom.bus.port import Stored
from postroom.errors import MessageTooLarge
from postroom.tasks.execution import Execution
from postroom.tasks.log import AttemptLost
from postroom.tasks.records import MAX_TASK_BYTES
from postroom_a2a.messages import text_message
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import artifacts_of, text_artifact
from tests.rig import Rig, running_bus
from tests.tasks.enginedesk import done, running_desk

pytestmark = pytest.mark.anyio


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncGenerator[Rig]:
    async with running_bus(tmp_path) as found:
        yield found


class Silent:
    """A bus whose answer to the next publish gets lost; what is published is stored."""

    def __init__(self, bus: Any) -> None:
        self.bus = bus
        self.uid = bus.uid
        self.silent = False
        self.stored = asyncio.Event()

    async def publish(
        self, subject: str, payload: bytes, *, metadata: Mapping[str, str] | None = None
    ) -> Stored | None:
        answer = await self.bus.publish(subject, payload, metadata=metadata)
        if self.silent:
            self.silent = False
            self.stored.set()
            await asyncio.get_running_loop().create_future()
        return answer


@pytest.mark.requirement("task-kill-ends-once")
async def test_a_task_goes_on_when_a_write_of_its_own_was_cut_short(rig: Rig) -> None:
    bus = Silent(await rig.agent())

    async def script(execution: Execution) -> None:
        if execution.attempt > 1:
            await execution.say(TaskState.COMPLETED, "done")
            return
        bus.silent = True
        artifact = text_artifact("a", "result")
        saying = asyncio.create_task(execution.result(artifact, append=False, last=True))
        await bus.stored.wait()
        saying.cancel()
        await asyncio.wait({saying})
        await execution.say(TaskState.COMPLETED, "done")

    async with running_desk(rig, script, bus=cast("NatsBus", bus)) as desk:
        task = await desk.ask("do it")
        last = await desk.log.until(task, TaskState.COMPLETED)

        assert last.lost <= 1
        assert (await desk.log.states(task)).count("completed") == 1
        following = await desk.ask("the next")
        await desk.log.until(following, TaskState.COMPLETED)


async def test_what_was_cut_short_is_not_taken_for_what_is_said_next(rig: Rig) -> None:
    bus = Silent(await rig.agent())

    async def script(execution: Execution) -> None:
        bus.silent = execution.attempt == 1
        saying = asyncio.create_task(execution.say(TaskState.WORKING, "a step"))
        if execution.attempt == 1:
            await bus.stored.wait()
            saying.cancel()
        await asyncio.wait({saying})
        await execution.result(text_artifact("a", "result"), append=False, last=True)
        await execution.say(TaskState.COMPLETED, "done")

    async with running_desk(rig, script, bus=cast("NatsBus", bus)) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.COMPLETED)

        events = [record.event or {} for _, record in await desk.log.records(task)]
        assert sum("artifactUpdate" in event for event in events) == 1
        assert artifacts_of((await desk.log.get(task)).record.task)


@pytest.mark.requirement("task-kill-ends-once")
async def test_a_task_that_has_no_room_left_is_begun_again_and_ends(rig: Rig) -> None:
    async def fill(execution: Execution) -> None:
        size = MAX_TASK_BYTES
        while size:
            try:
                piece = text_artifact("a", "x" * size)
                await execution.result(piece, append=True, last=False)
            except MessageTooLarge:
                size //= 2
        raise AttemptLost("it has died")

    async with running_desk(rig, fill) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.FAILED)

        attempts = [
            r.attempt for _, r in await desk.log.records(task) if r.state.value == "working"
        ]
        assert sorted(set(attempts)) == [1, 2, 3]
        desk.executor.script = done
        following = await desk.ask("the next")
        await desk.log.until(following, TaskState.COMPLETED)


@pytest.mark.requirement("task-kill-ends-once")
async def test_a_task_that_has_no_room_left_can_be_canceled(rig: Rig) -> None:
    full = asyncio.Event()

    async def fill(execution: Execution) -> None:
        size = MAX_TASK_BYTES
        while size:
            try:
                await execution.result(text_artifact("a", "x" * size), append=True, last=False)
            except MessageTooLarge:
                size //= 2
        full.set()
        await asyncio.get_running_loop().create_future()

    async with running_desk(rig, fill) as desk:
        task = await desk.ask("do it")
        await full.wait()
        await desk.engine.cancel(task, desk.alice, "it is too much")
        assert (await desk.log.states(task))[-1] == "canceled"
        assert "too much" in str((await desk.log.records(task))[-1][1].event)


@pytest.mark.requirement("task-kill-ends-once")
async def test_when_nobody_will_work_again_no_answered_task_is_left_as_if_it_was_worked_on(
    rig: Rig,
) -> None:
    busy = asyncio.Event()

    async def script(execution: Execution) -> None:
        if not busy.is_set():
            busy.set()
            await execution.say(TaskState.INPUT_REQUIRED, "which one?")
            return
        await answered.wait()
        desk.executor.gone = True
        raise AttemptLost("exit code 0")

    answered = asyncio.Event()
    async with running_desk(rig, script) as desk:
        asking = await desk.ask("asks")
        await desk.log.until(asking, TaskState.INPUT_REQUIRED)
        other = await desk.ask("is worked on")
        await desk.log.until(other, TaskState.WORKING)
        await desk.engine.answer(asking, desk.alice, text_message("m", "this one"))
        answered.set()

        await desk.log.until(other, TaskState.FAILED)
        await desk.log.until(asking, TaskState.FAILED)


@pytest.mark.requirement("task-kill-ends-once")
async def test_an_answer_that_nobody_will_take_ends_its_task(rig: Rig) -> None:
    async def ask(execution: Execution) -> None:
        desk.executor.gone = len(desk.executor.begun) == 2
        await execution.say(TaskState.INPUT_REQUIRED, "which one?")

    async with running_desk(rig, ask) as desk:
        given = [await desk.ask("one"), await desk.ask("two")]
        for task in given:
            await desk.log.until(task, TaskState.INPUT_REQUIRED)
        for task in given:
            await desk.engine.answer(task, desk.alice, text_message("m", "this one"))
            await desk.log.until(task, TaskState.FAILED)
            assert await desk.text(task) == "the agent has ended"
