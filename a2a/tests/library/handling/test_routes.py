"""Both handlers behind the SDK's own JSON-RPC routes, called by the SDK's own client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from a2a.types import CancelTaskRequest, ListTasksRequest, SubscribeToTaskRequest, TaskState
from a2a.utils.errors import (
    InvalidParamsError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from library.agents import Agent, answers, asks, chunks, raises, waits
from library.front import Front, artifacts, message, ours, reference, states

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("core-sdk-client")]

Open = Callable[[Agent], AbstractAsyncContextManager[Front]]

COMPLETED = TaskState.TASK_STATE_COMPLETED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED


@pytest.fixture(params=[reference, ours], ids=["sdk", "postroom"])
def served(request: pytest.FixtureRequest) -> Open:
    return request.param


async def test_a_task_comes_whole_and_as_a_stream(served: Open) -> None:
    async with served(Agent(chunks)) as front:
        task = (await front.send("write")).task
        events = await front.stream("write")

        assert task.status.state == COMPLETED
        assert artifacts(task) == {"a": "one two"}
        assert states(events) == ["submitted", "working", "completed"]
        assert artifacts(await front.get(events[0].task.id)) == {"a": "one two"}
        assert (await front.client.list_tasks(ListTasksRequest())).total_size == 2


async def test_a_message_comes_whole_and_as_a_stream(served: Open) -> None:
    async with served(Agent(answers, quiet=True)) as front:
        assert (await front.send("hello?")).message.parts[0].text == "hello"
        (event,) = await front.stream("hello?")
        assert event.message.parts[0].text == "hello"


async def test_a_question_is_answered_by_a_follow_up(served: Open) -> None:
    async with served(Agent(asks)) as front:
        asked = (await front.send("write")).task
        assert asked.status.state == INPUT_REQUIRED
        answer = message("red", task_id=asked.id, context_id=asked.context_id)

        assert artifacts((await front.send(answer)).task) == {"a": "red"}


async def test_a_cancel_ends_a_stream(served: Open) -> None:
    async with served(Agent(waits)) as front:
        streamed = asyncio.create_task(front.stream("write"))
        await front.agent.begun.wait()
        task = str(front.agent.contexts[0].task_id)
        await front.until(task, TaskState.TASK_STATE_WORKING)

        canceled = await front.client.cancel_task(CancelTaskRequest(id=task))
        assert canceled.status.state == TaskState.TASK_STATE_CANCELED
        assert states(await streamed) == ["submitted", "working", "canceled"]


async def test_each_refusal_has_its_own_error(served: Open) -> None:
    async with served(Agent(chunks)) as front:
        task = (await front.send("write")).task
        with pytest.raises(TaskNotFoundError):
            await front.get("none")
        with pytest.raises(TaskNotFoundError):
            await front.send(message("mine", task_id=task.id), user="mallory")
        with pytest.raises(UnsupportedOperationError):
            await front.send(message("more", task_id=task.id, context_id=task.context_id))
        with pytest.raises(UnsupportedOperationError):
            await front.events(front.client.subscribe(SubscribeToTaskRequest(id=task.id)))
        with pytest.raises(TaskNotCancelableError):
            await front.client.cancel_task(CancelTaskRequest(id=task.id))
        with pytest.raises(InvalidParamsError):
            await front.send(message("write", message_id=""))


async def test_an_exception_is_an_error_and_a_failed_task(served: Open) -> None:
    async with served(Agent(raises)) as front:
        task = (await front.send("write", return_immediately=True)).task
        await front.until(task.id, TaskState.TASK_STATE_FAILED)
