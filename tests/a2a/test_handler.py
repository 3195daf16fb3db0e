"""The operations of A2A through the SDK's routes and client: the same from our engine as from the SDK's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Role,
    StreamResponse,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import (
    InvalidParamsError,
    InvalidRequestError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from postroom_a2a.task_state import TaskState as State
from tests.a2a.agents import Agent, answers, asks, chunks, raises, returns, text, waits
from tests.a2a.front import Front, artifacts, durable, message, reference, start, states
from tests.rig import Rig, new_uid, running_bus

pytestmark = pytest.mark.anyio

Open = Callable[[Agent], AbstractAsyncContextManager[Front]]

COMPLETED = TaskState.TASK_STATE_COMPLETED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_bus(tmp_path) as found:
        yield found


@pytest.fixture(params=["postroom", "sdk"])
async def served(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """An agent by our engine, and by the SDK's own."""
    if request.param == "sdk":
        yield reference
        return
    async with running_bus(tmp_path) as rig:
        yield lambda agent: durable(rig, agent)


# ── the same by both ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("handler-same-as-sdk")
async def test_a_stream_shows_the_task_then_its_changes_and_ends_with_it(served: Open) -> None:
    async with served(Agent(chunks)) as front:
        events = await front.stream("write")

        assert events[0].HasField("task")
        assert states(events) == ["submitted", "working", "completed"]
        pieces = [event.artifact_update for event in events if event.HasField("artifact_update")]
        assert [piece.artifact.parts[0].text for piece in pieces] == ["one", " two"]
        assert [(piece.append, piece.last_chunk) for piece in pieces] == [
            (False, False),
            (True, True),
        ]
        task = await front.get(events[0].task.id)
        assert task.status.message.parts[0].text == "done"
        assert artifacts(task) == {"a": "one two"}


@pytest.mark.requirement("handler-same-as-sdk")
async def test_a_blocking_send_returns_the_finished_task(served: Open) -> None:
    async with served(Agent(chunks)) as front:
        task = (await front.send("write")).task

        assert task.status.state == COMPLETED
        assert artifacts(task) == {"a": "one two"}
        assert task.artifacts[0].name == "poem"
        assert task.history[0].parts[0].text == "write"


async def test_a_send_that_does_not_block_returns_at_once(served: Open) -> None:
    async with served(Agent(waits)) as front:
        task = (await front.send("write", return_immediately=True)).task

        assert task.status.state in {
            TaskState.TASK_STATE_SUBMITTED,
            TaskState.TASK_STATE_WORKING,
        }
        front.agent.gate.set()
        await front.until(task.id, COMPLETED)


@pytest.mark.requirement("task-answer-resumes")
async def test_a_question_is_answered_by_a_follow_up(served: Open) -> None:
    async with served(Agent(asks)) as front:
        asked = (await front.send("write")).task
        assert asked.status.state == INPUT_REQUIRED
        assert asked.status.message.parts[0].text == "which one?"

        answer = message("the red one", task_id=asked.id, context_id=asked.context_id)
        task = (await front.send(answer)).task

        assert task.id == asked.id
        assert task.status.state == COMPLETED
        assert artifacts(task) == {"a": "the red one"}
        assert [said.parts[0].text for said in task.history] == [
            "write",
            "which one?",
            "the red one",
        ]
        first, second = front.agent.shown
        assert first is None
        assert second is not None
        assert second.status.state == INPUT_REQUIRED
        assert second.status.message == asked.status.message
        assert [said.parts[0].text for said in second.history] == ["write"]


async def test_a_stream_ends_with_a_question(served: Open) -> None:
    async with served(Agent(asks)) as front:
        events = await front.stream("write")

        assert states(events) == ["submitted", "working", "input_required"]


async def test_a_follow_up_in_another_context_is_refused(served: Open) -> None:
    async with served(Agent(asks)) as front:
        asked = (await front.send("write")).task

        with pytest.raises(InvalidParamsError):
            await front.send(message("red", task_id=asked.id, context_id="elsewhere"))


async def test_a_finished_task_takes_no_follow_up(served: Open) -> None:
    async with served(Agent(chunks)) as front:
        task = (await front.send("write")).task

        with pytest.raises(UnsupportedOperationError):
            await front.send(message("more", task_id=task.id, context_id=task.context_id))
        with pytest.raises(UnsupportedOperationError):
            await front.events(front.client.subscribe(SubscribeToTaskRequest(id=task.id)))
        with pytest.raises(TaskNotCancelableError):
            await front.client.cancel_task(CancelTaskRequest(id=task.id))


@pytest.mark.requirement("task-cancel-interrupts")
async def test_a_cancel_reaches_the_executor_and_ends_its_work(served: Open) -> None:
    async with served(Agent(waits)) as front:
        streamed = asyncio.create_task(front.stream("write"))
        await front.agent.begun.wait()
        task = front.agent.contexts[0].task_id
        assert task is not None
        await front.until(task, TaskState.TASK_STATE_WORKING)

        canceled = await front.client.cancel_task(CancelTaskRequest(id=task))

        assert canceled.status.state == TaskState.TASK_STATE_CANCELED
        assert states(await streamed) == ["submitted", "working", "canceled"]
        assert front.agent.canceled == [task]
        assert front.agent.stopped == [task]


async def test_a_message_is_an_answer(served: Open) -> None:
    async with served(Agent(answers, quiet=True)) as front:
        got = await front.send("hello?")

        # The SDK returns the Message alone; a durable request always has its task.
        said = got.message if got.HasField("message") else got.task.status.message
        assert said.parts[0].text == "hello"
        assert got.HasField("message") or got.task.status.state == COMPLETED


async def test_an_exception_fails_the_task_and_is_not_tried_again(served: Open) -> None:
    async with served(Agent(raises)) as front:
        task = (await front.send("write", return_immediately=True)).task
        await front.until(task.id, TaskState.TASK_STATE_FAILED)

        assert front.agent.asked == ["write"]


@pytest.mark.requirement("attack-unseen")
async def test_anothers_task_looks_as_if_it_did_not_exist(served: Open) -> None:
    async with served(Agent(asks)) as front:
        asked = (await front.send("write")).task
        mallory = front.connect(new_uid())
        errors: list[list[tuple[type, str]]] = [[], []]

        for found, task in zip(errors, (asked.id, "0" * 32), strict=True):
            for call in (
                mallory.get_task(GetTaskRequest(id=task)),
                mallory.cancel_task(CancelTaskRequest(id=task)),
                front.events(mallory.subscribe(SubscribeToTaskRequest(id=task))),
            ):
                with pytest.raises(TaskNotFoundError) as error:
                    await call
                found.append((error.type, str(error.value)))
            with pytest.raises(TaskNotFoundError):
                await front.send(message("mine", task_id=task), user=new_uid())
        assert errors[0] == errors[1]
        assert not (await mallory.list_tasks(ListTasksRequest())).tasks
        assert (await front.get(asked.id)).status.state == INPUT_REQUIRED


async def test_history_is_as_long_as_wanted(served: Open) -> None:
    async with served(Agent(chunks)) as front:
        task = (await front.send("write")).task

        got = await front.client.get_task(GetTaskRequest(id=task.id, history_length=0))
        assert not got.history
        with pytest.raises(InvalidParamsError):
            await front.client.get_task(GetTaskRequest(id=task.id, history_length=-1))


@pytest.mark.requirement("a2a-server-speaks")
async def test_tasks_are_listed_newest_first_in_pages(served: Open) -> None:
    async with served(Agent(chunks)) as front:
        asked = [(await front.send(message("write", context_id=f"c{n}"))).task for n in range(3)]
        newest = [task.id for task in reversed(asked)]

        page = await front.client.list_tasks(ListTasksRequest(page_size=2))
        assert [task.id for task in page.tasks] == newest[:2]
        assert (page.total_size, page.page_size) == (3, 2)
        assert not page.tasks[0].artifacts
        rest = ListTasksRequest(page_size=2, page_token=page.next_page_token)
        page = await front.client.list_tasks(rest)
        assert [task.id for task in page.tasks] == newest[2:]
        assert not page.next_page_token

        wanted = ListTasksRequest(context_id="c1", include_artifacts=True)
        (found,) = (await front.client.list_tasks(wanted)).tasks
        assert artifacts(found) == {"a": "one two"}
        wanted = ListTasksRequest(status=COMPLETED, history_length=0)
        assert not (await front.client.list_tasks(wanted)).tasks[0].history
        wanted = ListTasksRequest(status=TaskState.TASK_STATE_FAILED)
        assert not (await front.client.list_tasks(wanted)).tasks
        wanted = ListTasksRequest(status_timestamp_after=asked[1].status.timestamp)
        assert len((await front.client.list_tasks(wanted)).tasks) == 2
        for size in (-1, 101):
            with pytest.raises(InvalidParamsError):
                await front.client.list_tasks(ListTasksRequest(page_size=size))
        with pytest.raises(InvalidParamsError):
            await front.client.list_tasks(ListTasksRequest(page_token="no page"))


async def test_what_is_not_offered_is_refused_by_its_own_error(served: Open) -> None:
    async with served(Agent(chunks)) as front:
        task = (await front.send("write")).task

        config = TaskPushNotificationConfig(task_id=task.id, url="http://hook.test/")
        with pytest.raises(PushNotificationNotSupportedError):
            await front.client.create_task_push_notification_config(config)
        for verb in ("Get", "Delete"):
            method = f"{verb}TaskPushNotificationConfig"
            assert await front.error(method, taskId=task.id, id="c") == -32003
        assert await front.error("ListTaskPushNotificationConfigs", taskId=task.id) == -32003
        assert await front.error("GetExtendedAgentCard") == -32004


async def test_a_message_without_its_required_fields_is_refused(served: Open) -> None:
    async with served(Agent(chunks)) as front:
        for wrong in (
            message("write", message_id=""),
            Message(message_id="m", role=Role.ROLE_USER),
            Message(message_id="m", parts=message("write").parts),
        ):
            with pytest.raises(InvalidParamsError):
                await front.send(wrong)
        assert front.agent.asked == []


# ── ours alone ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("task-answer-resumes")
async def test_the_context_of_a_follow_up_is_inferred(rig: Rig) -> None:
    async with durable(rig, Agent(asks)) as front:
        asked = (await front.send("write")).task

        events = await front.stream(message("red", task_id=asked.id))

        assert events[0].task.id == asked.id
        assert states(events) == ["working", "completed"]
        assert front.agent.contexts[1].context_id == asked.context_id


async def test_an_answer_that_is_sent_again_is_the_same_answer(rig: Rig) -> None:
    async with durable(rig, Agent(asks)) as front:
        asked = (await front.send("write")).task
        answer = message("red", task_id=asked.id)
        task = (await front.send(answer)).task

        again = (await front.send(answer)).task
        streamed = await front.stream(answer)

        assert again == task
        assert [event.task for event in streamed] == [task]
        assert front.agent.asked == ["write", "red"]


async def test_a_task_that_works_takes_no_answer(rig: Rig) -> None:
    async with durable(rig, Agent(waits)) as front:
        task = (await front.send("write", return_immediately=True)).task
        await front.agent.begun.wait()

        with pytest.raises(UnsupportedOperationError, match="waits for no answer"):
            await front.send(message("red", task_id=task.id))
        front.agent.gate.set()
        await front.until(task.id, COMPLETED)


@pytest.mark.requirement("task-request-runs-once")
async def test_the_same_message_of_the_same_user_is_the_same_task(rig: Rig) -> None:
    async with durable(rig, Agent(chunks)) as front:
        same = message("write")
        both = await asyncio.gather(front.send(same), front.send(same))
        streamed = await front.stream(same)
        other = (await front.send(same, user=new_uid())).task

        assert both[0].task == both[1].task
        assert streamed[0].task.id == both[0].task.id
        assert states(streamed) == ["submitted", "working", "completed"]
        assert other.id != both[0].task.id
        assert front.agent.asked == ["write", "write"]


@pytest.mark.requirement("a2a-server-speaks")
async def test_a_subscriber_sees_the_task_then_all_that_follows_up_to_its_end(rig: Rig) -> None:
    async def work(agent: Agent, context: Any, _: Any, updater: TaskUpdater) -> None:
        agent.begun.set()
        await agent.gate.wait()
        if context.current_task is None:
            await updater.requires_input()
        else:
            await updater.complete()

    async with durable(rig, Agent(work)) as front, asyncio.timeout(20):
        asked = (await front.send("write", return_immediately=True)).task
        await front.agent.begun.wait()
        events: list[StreamResponse] = []
        async for event in front.subscribe(asked.id):
            events.append(event)
            front.agent.gate.set()
            if states(events)[-1] == "input_required":
                await front.send(message("red", task_id=asked.id), return_immediately=True)

        assert events[0].HasField("task")
        assert states(events) == ["working", "input_required", "working", "completed"]


async def test_who_is_not_known_gets_nothing(rig: Rig) -> None:
    async with durable(rig, Agent(chunks)) as front:
        with pytest.raises(InvalidRequestError):
            await front.send("write", user="")
        nobody = front.connect("")
        with pytest.raises(InvalidRequestError):
            await nobody.list_tasks(ListTasksRequest())
        assert front.agent.asked == []


async def test_a_push_address_in_a_send_is_refused_and_nothing_runs(rig: Rig) -> None:
    async with durable(rig, Agent(chunks)) as front:
        config = TaskPushNotificationConfig(url="http://hook.test/")
        with pytest.raises(PushNotificationNotSupportedError):
            await front.send("write", task_push_notification_config=config)
        assert front.agent.asked == []


@pytest.mark.requirement("a2a-server-speaks")
async def test_a_task_for_a_worker_that_is_not_there_is_accepted_and_done_later(rig: Rig) -> None:
    agent = Agent(chunks)
    async with durable(rig, agent, running=False) as front:
        waiting = asyncio.create_task(front.send("write"))
        task = (await front.send("another", return_immediately=True)).task
        assert task.status.state == TaskState.TASK_STATE_SUBMITTED

        bus = await rig.agent(front.ours.log.worker)
        async with start(front.ours, bus, agent):
            assert (await waiting).task.status.state == COMPLETED
            await front.until(task.id, COMPLETED)


@pytest.mark.requirement("task-kill-ends-once")
async def test_an_executor_runs_again_when_its_worker_died_and_the_task_ends_once(
    rig: Rig,
) -> None:
    async with durable(rig, Agent(waits), running=False) as front:
        bus = await rig.agent(front.ours.log.worker)
        async with start(front.ours, bus, Agent(waits)) as first:
            waiting = asyncio.create_task(front.send("write"))
            await asyncio.wait_for(front.ours.log.until(await the_task(front), State.WORKING), 20)
            assert first is not None
        second = Agent(chunks)
        async with start(front.ours, bus, second):
            task = (await waiting).task

        assert task.status.state == COMPLETED
        assert artifacts(task) == {"a": "one two"}
        records = [record for _, record in await front.ours.log.records(task.id)]
        assert [record.state for record in records].count(State.COMPLETED) == 1
        assert (records[-1].attempt, records[-1].lost) == (2, 1)
        assert second.contexts[0].call_context.state["postroom.attempt"] == 2
        assert second.contexts[0].current_task is None


async def the_task(front: Front) -> str:
    """The only task, as soon as it was asked for."""
    async with asyncio.timeout(20):
        while True:
            for task in front.ours.log.asks:
                return task
            await asyncio.sleep(0.005)


@pytest.mark.requirement("task-kill-ends-once")
async def test_a_kill_of_the_server_in_mid_task_loses_and_doubles_nothing(tmp_path: Path) -> None:
    async with running_bus(tmp_path, memory=False) as rig:

        async def work(agent: Agent, _: object, __: object, updater: TaskUpdater) -> None:
            for number in range(30):
                await updater.add_artifact(text(f"{number} "), artifact_id="a", append=number > 0)
                if number == 10:
                    agent.begun.set()
            await updater.complete()

        async with durable(rig, Agent(work)) as front:
            waiting = asyncio.create_task(front.send("write"))
            await front.agent.begun.wait()
            await rig.restart(kill=True)
            task = (await waiting).task

            assert artifacts(task) == {"a": "".join(f"{number} " for number in range(30))}
            assert front.agent.asked == ["write"]


async def test_work_without_a_result_has_failed(rig: Rig) -> None:
    async with durable(rig, Agent(returns)) as front:
        task = (await front.send("write")).task

        assert task.status.state == TaskState.TASK_STATE_FAILED
        assert task.status.message.parts[0].text == "the agent ended its work without a result"


async def test_a_failure_says_what_was_raised(rig: Rig) -> None:
    async with durable(rig, Agent(raises)) as front:
        task = (await front.send("write")).task

        assert task.status.message.parts[0].text == "the agent raised ValueError: no such poem"
