"""Executors of the A2A SDK on our engine: what is stored, when, and what becomes of those that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from a2a.server.agent_execution import RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    Artifact,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import InvalidAgentResponseError

from postroom.bus.nats import NatsBus
from postroom.errors import LostUpdate, MessageTooLarge
from postroom.oldsdk.executors import SdkExecutor
from postroom.protocol import subjects
from postroom.protocol.tasks import chain_headers
from postroom.tasks.records import MAX_TASK_BYTES, TaskRecord
from postroom_a2a.messages import ROLE_USER, text_message
from postroom_a2a.task_state import TaskState as State
from postroom_a2a.tasks import artifacts_of, status_text
from tests.a2a.agents import Agent, Work, answers, asks, chunks, text, waits
from tests.a2a.desk import Log
from tests.a2a.front import LogService, start
from tests.rig import Rig, new_uid, running_bus

pytestmark = pytest.mark.anyio


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_bus(tmp_path) as found:
        yield found


@dataclass
class Bench:
    """One agent on one engine."""

    agent: Agent
    service: LogService
    bus: NatsBus
    alice: str
    executor: SdkExecutor

    @property
    def log(self) -> Log:
        return self.service.log

    async def ask(self, what: str | dict[str, Any] = "write") -> str:
        said = text_message(new_uid(), what, role=ROLE_USER) if isinstance(what, str) else what
        return await self.service.submit(said, self.alice)

    async def end(self, task: str, state: State) -> TaskRecord:
        await self.log.until(task, state)
        return (await self.log.get(task)).record

    async def cancel(self, task: str, reason: str = "") -> None:
        assert self.service.engine is not None
        await self.service.engine.cancel(task, self.alice, reason)


@asynccontextmanager
async def bench(rig: Rig, agent: Agent | Work, **options: Any) -> AsyncGenerator[Bench]:
    agent = agent if isinstance(agent, Agent) else Agent(agent)
    bus = options.pop("bus", None) or await rig.agent()
    service = options.pop("service", None) or LogService(Log(rig, bus.uid))
    alice = options.pop("alice", None) or new_uid()
    async with start(service, bus, agent, **options) as executor:
        yield Bench(agent, service, bus, alice, executor)


async def test_an_event_is_stored_when_it_is_enqueued(rig: Rig) -> None:
    seen: list[list[dict[str, str]]] = []

    async def work(_: Any, context: RequestContext, __: Any, updater: TaskUpdater) -> None:
        assert context.task_id is not None
        for number in range(3):
            await updater.add_artifact(text("x"), artifact_id="a", append=number > 0)
            seen.append(artifacts_of((await desk.log.get(context.task_id)).record.task))
        await updater.complete()

    async with bench(rig, work) as desk:
        await desk.end(await desk.ask(), State.COMPLETED)

    assert [found[0]["text"] for found in seen] == ["x", "xx", "xxx"]


async def test_only_what_changes_the_task_is_a_record(rig: Rig) -> None:
    async with bench(rig, chunks) as desk:
        task = await desk.ask()
        await desk.end(task, State.COMPLETED)

        # Its Task and its first `working` say what is stored already.
        assert await desk.log.states(task) == ["submitted", *["working"] * 3, "completed"]


async def test_an_executor_knows_who_asked_what_in_which_context(rig: Rig) -> None:
    async with bench(rig, chunks) as desk:
        said = text_message(new_uid(), "write", role=ROLE_USER, context_id="talk")
        task = await desk.ask({**said, "metadata": {"tone": "sad"}})
        await desk.end(task, State.COMPLETED)

        (context,) = desk.agent.contexts
        assert context.call_context.user.is_authenticated
        assert context.call_context.user.user_name == desk.alice
        assert (context.task_id, context.context_id) == (task, "talk")
        assert context.message is not None
        assert context.message.message_id == said["messageId"]
        assert context.message.metadata["tone"] == "sad"


async def test_a_first_task_brings_its_artifacts_and_its_state(rig: Rig) -> None:
    async def work(_: Any, context: RequestContext, queue: EventQueue, __: Any) -> None:
        task = Task(
            id=context.task_id,
            context_id=context.context_id,
            status=TaskStatus(state=TaskState.TASK_STATE_COMPLETED),
            artifacts=[Artifact(artifact_id="a", parts=text("all of it"))],
        )
        await queue.enqueue_event(task)

    async with bench(rig, Agent(work, quiet=True)) as desk:
        record = await desk.end(await desk.ask(), State.COMPLETED)

        assert artifacts_of(record.task) == [{"id": "a", "name": "", "text": "all of it"}]


async def test_a_message_completes_the_task_with_that_message(rig: Rig) -> None:
    async with bench(rig, Agent(answers, quiet=True)) as desk:
        record = await desk.end(await desk.ask(), State.COMPLETED)

        assert status_text(record.task) == "hello"


async def test_metadata_of_a_status_is_kept_with_the_task(rig: Rig) -> None:
    async def work(_: Any, __: Any, ___: Any, updater: TaskUpdater) -> None:
        await updater.update_status(TaskState.TASK_STATE_WORKING, metadata={"done": "half"})
        await updater.complete()

    async with bench(rig, work) as desk:
        record = await desk.end(await desk.ask(), State.COMPLETED)

        assert record.task["metadata"] == {"done": "half"}


@pytest.mark.parametrize("end", [TaskUpdater.complete, TaskUpdater.requires_input])
async def test_what_comes_after_the_end_is_dropped_and_the_next_task_is_done(
    rig: Rig, end: Any
) -> None:
    async def work(agent: Agent, context: RequestContext, _: Any, updater: TaskUpdater) -> None:
        await end(updater)
        await updater.add_artifact(text("late"))
        agent.begun.set()
        raise ValueError("and more")

    async with bench(rig, work) as desk:
        first, second = await desk.ask(), await desk.ask()
        state = State.COMPLETED if end is TaskUpdater.complete else State.INPUT_REQUIRED
        await desk.end(second, state)

        for task in (first, second):
            record = (await desk.log.get(task)).record
            assert record.state is state
            assert "artifacts" not in record.task
            assert await desk.log.stored(task) == 3


def stranger(context: RequestContext) -> TaskStatusUpdateEvent:
    status = TaskStatus(state=TaskState.TASK_STATE_COMPLETED)
    return TaskStatusUpdateEvent(task_id="0" * 32, context_id=context.context_id, status=status)


def elsewhere(context: RequestContext) -> TaskStatusUpdateEvent:
    status = TaskStatus(state=TaskState.TASK_STATE_COMPLETED)
    return TaskStatusUpdateEvent(task_id=context.task_id, context_id="other", status=status)


def stateless(context: RequestContext) -> TaskStatusUpdateEvent:
    return TaskStatusUpdateEvent(task_id=context.task_id, context_id=context.context_id)


def unfounded(context: RequestContext) -> TaskArtifactUpdateEvent:
    artifact = Artifact(artifact_id="nowhere", parts=text("x"))
    return TaskArtifactUpdateEvent(task_id=context.task_id, artifact=artifact, append=True)


def nameless(context: RequestContext) -> TaskArtifactUpdateEvent:
    return TaskArtifactUpdateEvent(task_id=context.task_id, artifact=Artifact(parts=text("x")))


@pytest.mark.parametrize("wrong", [stranger, elsewhere, stateless, unfounded, nameless])
async def test_an_event_that_does_not_belong_to_the_task_is_refused(rig: Rig, wrong: Any) -> None:
    async def work(_: Any, context: RequestContext, queue: EventQueue, __: Any) -> None:
        await queue.enqueue_event(wrong(context))

    async with bench(rig, work) as desk:
        task = await desk.ask()
        record = await desk.end(task, State.FAILED)

        assert status_text(record.task).startswith("the agent raised InvalidAgentResponseError: ")
        assert await desk.log.states(task) == ["submitted", "working", "failed"]
        assert len(desk.agent.asked) == 1


async def test_a_message_after_a_task_is_refused(rig: Rig) -> None:
    refused: list[Exception] = []

    async def work(_: Any, context: RequestContext, queue: EventQueue, updater: Any) -> None:
        try:
            await answers(None, context, queue, None)
        except InvalidAgentResponseError as error:
            refused.append(error)
        await updater.complete()

    async with bench(rig, work) as desk:
        await desk.end(await desk.ask(), State.COMPLETED)

        assert len(refused) == 1


async def test_a_result_that_is_too_large_is_refused_where_it_is_said(rig: Rig) -> None:
    async def work(_: Any, __: Any, ___: Any, updater: TaskUpdater) -> None:
        with pytest.raises(MessageTooLarge):
            await updater.add_artifact(text("x" * MAX_TASK_BYTES))
        await updater.complete(updater.new_agent_message(text("without it")))

    async with bench(rig, work) as desk:
        record = await desk.end(await desk.ask(), State.COMPLETED)

        assert status_text(record.task) == "without it"


async def test_a_request_that_is_no_message_is_rejected(rig: Rig) -> None:
    async with bench(rig, chunks) as desk:
        task = await desk.ask({"messageId": new_uid(), "role": ROLE_USER, "parts": "write"})
        record = await desk.end(task, State.REJECTED)

        assert "not a Message" in status_text(record.task)
        await desk.end(await desk.ask(), State.COMPLETED)


@pytest.mark.requirement("task-cancel-interrupts")
async def test_an_executor_that_says_nothing_is_canceled(rig: Rig) -> None:
    class Silent(Agent):
        async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
            raise NotImplementedError("cancel not supported")

    async with bench(rig, Silent(waits)) as desk:
        task = await desk.ask()
        await desk.agent.begun.wait()
        await desk.cancel(task, "never mind")

        record = (await desk.log.get(task)).record
        assert (record.state, status_text(record.task)) == (State.CANCELED, "never mind")
        assert desk.agent.stopped == [task]


@pytest.mark.requirement("task-cancel-interrupts")
async def test_an_executor_that_will_not_end_is_left_behind(rig: Rig) -> None:
    free = asyncio.Event()

    class Deaf(Agent):
        async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
            await self.ignore()

        @staticmethod
        async def ignore() -> None:
            while not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    continue

    async def work(agent: Agent, context: RequestContext, _: Any, updater: TaskUpdater) -> None:
        agent.begun.set()
        if context.get_user_input() == "stay":
            await Deaf.ignore()
        await updater.complete()

    async with bench(rig, Deaf(work), grace=0.05) as desk:
        task = await desk.ask("stay")
        await desk.agent.begun.wait()
        await desk.cancel(task)
        other = await desk.ask("go")
        await desk.end(other, State.COMPLETED)
        free.set()

        assert await desk.log.states(task) == ["submitted", "working", "canceled"]


async def test_an_executor_that_stays_after_its_question_is_ended(rig: Rig) -> None:
    async def work(agent: Agent, context: Any, queue: Any, updater: TaskUpdater) -> None:
        if context.current_task is None:
            await updater.requires_auth()
            await waits(agent, context, queue, updater)
        await updater.complete()

    async with bench(rig, work, linger=0.05) as desk:
        task = await desk.ask()
        await desk.end(task, State.AUTH_REQUIRED)
        await desk.service.answer(task, text_message(new_uid(), "done"), desk.alice)
        await desk.end(task, State.COMPLETED)

        assert desk.agent.stopped == [task]


async def test_an_executor_whose_task_is_somebody_elses_is_ended(rig: Rig) -> None:
    refused: list[Exception] = []

    async def work(agent: Agent, _: Any, __: Any, updater: TaskUpdater) -> None:
        agent.begun.set()
        await agent.gate.wait()
        try:
            await updater.add_artifact(text("mine"))
        except LostUpdate as error:
            refused.append(error)
        await asyncio.get_running_loop().create_future()

    async with bench(rig, work) as desk:
        task = await desk.ask()
        await desk.agent.begun.wait()
        stored = await desk.log.get(task)
        event = {
            "statusUpdate": {
                "taskId": task,
                "contextId": task,
                "status": {"state": State.CANCELED.a2a, "timestamp": "2026-01-01T00:00:00.000Z"},
            }
        }
        other = stored.record.then(event, runner="postroom")
        subject = subjects.task(desk.bus.uid, task, "canceled")
        headers = chain_headers(desk.bus.uid, task, stored.sequence)
        await desk.bus.publish(subject, other.encode(), metadata=headers)
        desk.agent.gate.set()
        desk.agent.begun.clear()
        await desk.ask()
        await desk.agent.begun.wait()

        assert len(refused) >= 1
        assert desk.agent.stopped == [task]
        assert await desk.log.states(task) == ["submitted", "working", "canceled"]


@pytest.mark.requirement("task-kill-ends-once")
async def test_a_crash_after_an_answer_runs_the_executor_with_that_answer_again(rig: Rig) -> None:
    async def work(agent: Agent, context: Any, queue: Any, updater: TaskUpdater) -> None:
        if context.current_task is None:
            await updater.requires_input(updater.new_agent_message(text("which one?")))
        else:
            await waits(agent, context, queue, updater)

    async with bench(rig, work) as desk:
        task = await desk.ask()
        await desk.end(task, State.INPUT_REQUIRED)
        await desk.service.answer(task, text_message(new_uid(), "red"), desk.alice)
        await desk.agent.begun.wait()

    async with bench(rig, asks, service=desk.service, bus=desk.bus, alice=desk.alice) as again:
        record = await again.end(task, State.COMPLETED)

        assert again.agent.asked == ["red"]
        assert artifacts_of(record.task)[0]["text"] == "red"
        assert record.attempt == 2


async def test_a_worker_that_stops_on_purpose_loses_nothing(rig: Rig) -> None:
    async with bench(rig, waits) as desk:
        task = await desk.ask()
        await desk.agent.begun.wait()
        assert desk.service.engine is not None
        desk.service.engine.stop()
        await desk.executor.close()
        await desk.service.engine.settled(10)

        assert (await desk.log.get(task)).record.released

    async with bench(rig, chunks, service=desk.service, bus=desk.bus, alice=desk.alice) as again:
        record = await again.end(task, State.COMPLETED)
        assert (record.attempt, record.lost) == (2, 0)
