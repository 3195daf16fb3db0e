"""The agent program as an executor, where an agent comes and goes between two steps."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from postroom.sidecar.adapters import Sender
from postroom.sidecar.ctl import DirectoryClient
from postroom.sidecar.program import ProgramExecutor
from postroom.tasks.execution import Execution
from postroom.tasks.records import TaskRecord
from postroom_a2a.messages import text_message
from postroom_a2a.tasks import new_task

pytestmark = pytest.mark.anyio

TASK, ALICE = "ab" * 16, "cd" * 16


class Absent:
    """An agent that is being started; nothing may be said to it."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.here = asyncio.Event()

    async def running(self) -> object:
        self.asked.set()
        await self.here.wait()
        return object()


class Names:
    async def describe(self, uid: str) -> Sender:
        return Sender(uid)


async def write(_: Execution, __: TaskRecord, /, *, fitting: bool = False) -> None:
    raise AssertionError("the program said something")


@pytest.mark.requirement("task-queue-keeps-order")
async def test_a_task_that_is_canceled_while_the_agent_is_being_started_is_not_handed_to_it():
    agent: Any = Absent()
    program = ProgramExecutor(agent, cast("DirectoryClient", Names()), 5.0)
    task = new_task(TASK, TASK, text_message("m1", "do it"), 0.0)
    execution = Execution(TaskRecord(task, "m1", ALICE), 1, write)
    executing = asyncio.create_task(program.execute(execution))
    await agent.asked.wait()

    execution.canceling = True
    assert await program.cancel(execution) == ""
    agent.here.set()

    async with asyncio.timeout(5):
        await executing
