"""Where our request handler is better than the SDK's on purpose."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from typing import Any

import pytest
from a2a.server.agent_execution import RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import InternalError, InvalidAgentResponseError, UnsupportedOperationError

from library.agents import Agent, answers, asks, chunks, raises, returns, text, waits
from library.front import artifacts, message
from library.handling.handlers import BY_US, asked, kinds, shown
from postroom_a2a.sdk.handling import MemoryTaskStore, run

pytestmark = pytest.mark.anyio

COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED
WORKING = TaskState.TASK_STATE_WORKING
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED


async def begun(desk: Any) -> str:
    task = await desk.send("write", return_immediately=True)
    await desk.agent.begun.wait()
    return task.id


async def settled() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


# ── follow-ups ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-sdk-client")
async def test_a_follow_up_that_names_only_its_task_is_in_that_tasks_context() -> None:
    async with BY_US(asks) as desk:
        question = await desk.send("write")
        task = await desk.send(message("red", task_id=question.id))

        assert task.status.state == COMPLETED
        assert task.context_id == question.context_id
        assert desk.agent.contexts[1].context_id == question.context_id
        assert task.history[-1].context_id == question.context_id


async def test_an_agent_cannot_change_the_task_that_it_is_shown() -> None:
    async def work(_: Agent, context: RequestContext, __: Any, updater: TaskUpdater) -> None:
        if context.current_task is None:
            await updater.requires_input()
            return
        context.current_task.history.add(message_id="forged")
        await updater.complete()

    async with BY_US(work) as desk:
        question = await desk.send("write")
        task = await desk.send(message("red", task_id=question.id))

        assert "forged" not in [said.message_id for said in task.history]


async def test_an_agent_that_ends_without_an_answer_is_an_error() -> None:
    async with BY_US(returns, quiet=True) as desk:
        with pytest.raises(InvalidAgentResponseError, match="without an answer"):
            await desk.send("write")
        assert await desk.stream("write") == []


async def test_a_task_that_its_agent_left_open_is_returned_as_it_is() -> None:
    async with BY_US(returns) as desk:
        assert (await desk.send("write")).status.state == WORKING


async def test_an_event_is_stored_when_it_is_enqueued() -> None:
    seen: list[dict[str, str]] = []

    async def work(_: Agent, context: RequestContext, __: Any, updater: TaskUpdater) -> None:
        for number in range(3):
            await updater.add_artifact(text("x"), artifact_id="a", append=number > 0)
            seen.append(artifacts(await desk.get(str(context.task_id))))
        await updater.complete()

    async with BY_US(work) as desk:
        await desk.send("write")

    assert seen == [{"a": "x"}, {"a": "xx"}, {"a": "xxx"}]


# ── ends ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("core-sdk-client")
async def test_nothing_is_written_over_the_end_of_a_task() -> None:
    async def work(_: Any, context: RequestContext, queue: EventQueue, updater: Any) -> None:
        await updater.complete()
        ids: Any = {"task_id": context.task_id, "context_id": context.context_id}
        late = TaskArtifactUpdateEvent(**ids)
        late.artifact.artifact_id = "late"
        await queue.enqueue_event(late)
        again = TaskStatusUpdateEvent(**ids)
        again.status.state = WORKING
        await queue.enqueue_event(again)
        raise ValueError("too late")

    async with BY_US(work) as desk:
        task = await desk.send("write")
        seen: list[Any] = []
        with pytest.raises(ValueError, match="too late"):
            await desk.streamed_into(seen, "write")

        assert shown(seen) == ["submitted", "working", "completed"]
        for each in (task.id, seen[0].id):
            stored = await desk.get(each)
            assert stored.status.state == COMPLETED
            assert not stored.artifacts


@pytest.mark.requirement("core-sdk-client")
async def test_an_agent_that_completes_what_was_cancelled_is_not_heard() -> None:
    async def work(agent: Agent, _: Any, __: Any, updater: TaskUpdater) -> None:
        agent.begun.set()
        try:
            await agent.gate.wait()
        except asyncio.CancelledError:
            await updater.complete()

    async with BY_US(work) as desk:
        task = await begun(desk)

        assert (await desk.cancel(task)).status.state == CANCELED
        await settled()
        assert (await desk.get(task)).status.state == CANCELED


class Silent(Agent):
    """Says nothing of a cancellation."""

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.canceled.append(str(context.task_id))


@pytest.mark.requirement("core-sdk-client")
async def test_a_cancel_ends_a_silent_executor_and_is_told_to_streams() -> None:
    async with BY_US(Silent(waits)) as desk:
        streamed = asyncio.create_task(desk.stream("write"))
        await desk.agent.begun.wait()
        task = str(desk.agent.contexts[0].task_id)
        canceled = await desk.cancel(task)

        assert canceled.status.state == CANCELED
        assert canceled.status.HasField("timestamp")
        assert desk.agent.canceled == desk.agent.stopped == [task]
        assert shown(await streamed) == ["submitted", "working", "canceled"]
        assert desk.handler.running == 0


@pytest.mark.requirement("core-sdk-client", "task-queue-keeps-order")
async def test_a_cancel_ends_the_task_of_an_executor_that_ignores_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "GRACE", 0.01)

    async def deaf(agent: Agent, _: Any, __: Any, ___: Any) -> None:
        agent.begun.set()
        while not agent.gate.is_set():
            try:
                await agent.gate.wait()
            except asyncio.CancelledError:
                agent.stopped.append("told")

    async with BY_US(Silent(deaf)) as desk:
        streamed = asyncio.create_task(desk.stream("write"))
        await desk.agent.begun.wait()
        task = str(desk.agent.contexts[0].task_id)

        assert (await desk.cancel(task)).status.state == CANCELED
        assert shown(await streamed)[-1] == "canceled"
        assert desk.agent.stopped == ["told"]


async def test_a_cancellation_and_a_failure_are_pushed_too() -> None:
    class Sender:
        def __init__(self) -> None:
            self.states: list[int] = []

        async def send_notification(self, task_id: str, event: Any) -> None:
            self.states.append(event.status.state)

    sender = Sender()
    async with BY_US(Silent(waits), push_sender=sender) as desk:
        await desk.cancel(await begun(desk))
        desk.agent.work = raises
        with pytest.raises(ValueError, match="no such poem"):
            await desk.send("write")

    assert sender.states[2::3] == [CANCELED, FAILED]


async def test_two_cancels_at_once_reach_the_executor_once() -> None:
    async with BY_US(Silent(waits)) as desk:
        task = await begun(desk)
        both = await asyncio.gather(desk.cancel(task), desk.cancel(task))

        assert [each.status.state for each in both] == [CANCELED, CANCELED]
        assert desk.agent.canceled == [task]


class SlowStore(MemoryTaskStore):
    """Lets the test come between the agent and its store."""

    def __init__(self) -> None:
        super().__init__()
        self.saving = asyncio.Event()
        self.gate = asyncio.Event()

    async def save(self, task: Task, context: Any) -> None:
        if task.artifacts:
            self.saving.set()
            await self.gate.wait()
        await super().save(task, context)


async def test_an_event_that_a_cancel_meets_is_stored_and_told_as_a_whole() -> None:
    async def work(_: Agent, __: Any, ___: Any, updater: TaskUpdater) -> None:
        await updater.add_artifact(text("one"), artifact_id="a")
        await updater.complete()

    store = SlowStore()
    async with BY_US(Silent(work), task_store=store) as desk:
        streamed = asyncio.create_task(desk.stream("write"))
        await store.saving.wait()
        task = str(desk.agent.contexts[0].task_id)
        canceling = asyncio.create_task(desk.cancel(task))
        await settled()
        assert desk.agent.canceled == [task]
        store.gate.set()

        assert (await canceling).status.state == CANCELED
        assert kinds(await streamed)[-2:] == ["TaskArtifactUpdateEvent", "TaskStatusUpdateEvent"]
        assert artifacts(await desk.get(task)) == {"a": "one"}


async def test_a_store_that_fails_is_an_error_to_the_caller() -> None:
    class Full(MemoryTaskStore):
        async def save(self, task: Task, context: Any) -> None:
            raise OSError("disk full")

    async with BY_US(chunks, task_store=Full()) as desk:
        with pytest.raises(OSError, match="disk full"):
            await desk.send("write")
        await settled()
        assert desk.handler.running == 0


# ── what is left behind ─────────────────────────────────────────────────────────────────────────────


async def test_what_has_ended_leaves_nothing_behind() -> None:
    before = asyncio.all_tasks()
    for work, quiet in ((chunks, False), (answers, True), (raises, False), (raises, True)):
        async with BY_US(work, quiet=quiet) as desk:
            for call in (desk.send("write"), desk.stream("write")):
                with suppress(ValueError):
                    await call
            await settled()
            assert desk.handler.running == 0
            assert asyncio.all_tasks() == before


async def test_a_task_that_asks_holds_no_asyncio_task_and_is_forgotten_in_time() -> None:
    before = asyncio.all_tasks()
    async with BY_US(asks, interrupted_task_timeout=0.01) as desk:
        task = await desk.send("write")
        await settled()
        assert asyncio.all_tasks() == before
        assert desk.handler.running == 1
        async with asyncio.timeout(20):
            while desk.handler.running:  # noqa: ASYNC110 (a timer, which tells nobody)
                await asyncio.sleep(0.005)

        done = await desk.send(message("red", task_id=task.id))
        assert done.status.state == COMPLETED
        assert [said.parts[0].text for said in done.history] == ["write", "which one?", "red"]


async def test_a_subscriber_of_a_task_from_another_process_leaves_nothing_behind() -> None:
    async with BY_US(asks) as desk:
        other = MemoryTaskStore()
        desk.handler._store = desk.handler._runs._host.store = other
        await other.save(
            Task(id="t", context_id="c", status={"state": INPUT_REQUIRED}), desk.context
        )
        events = desk.subscribe("t")
        assert (await anext(events)).id == "t"
        assert desk.handler.running == 1
        await events.aclose()

        assert desk.handler.running == 0


async def test_a_caller_that_goes_away_leaves_the_agent_running() -> None:
    async with BY_US(waits) as desk:
        waiting = asyncio.create_task(desk.send("write"))
        await desk.agent.begun.wait()
        waiting.cancel()
        await asyncio.wait([waiting])
        desk.agent.gate.set()

        await desk.until(str(desk.agent.contexts[0].task_id), COMPLETED)


# ── slow readers ────────────────────────────────────────────────────────────────────────────────────


def _many(count: int) -> Any:
    async def work(agent: Agent, _: Any, __: Any, updater: TaskUpdater) -> None:
        for number in range(count):
            await updater.add_artifact(text(str(number)), artifact_id=f"a{number}")
            agent.asked.append(str(number))
        await updater.complete()

    return work


@pytest.mark.requirement("core-busy-told")
async def test_a_slow_reader_slows_the_agent_and_loses_nothing() -> None:
    async with BY_US(_many(20), buffer=2) as desk:
        events = desk.handler.on_message_send_stream(asked("write"), desk.context)
        seen = [await anext(events)]
        async for event in events:
            await settled()
            told = len(desk.agent.asked) - 1
            seen.append(event)
            assert told <= len(seen) + 2

        assert len([each for each in seen if isinstance(each, TaskArtifactUpdateEvent)]) == 20
        assert shown(seen)[-1] == "completed"


@pytest.mark.requirement("core-busy-told")
async def test_a_reader_that_stands_still_is_ended_with_an_error_and_the_agent_goes_on() -> None:
    async with BY_US(_many(20), buffer=2, stall=0.02) as desk:
        events = desk.handler.on_message_send_stream(asked("write"), desk.context)
        first = await anext(events)
        task = await desk.until(first.id, COMPLETED)

        assert len(task.artifacts) == 20
        with pytest.raises(InternalError, match="subscribe"):
            async for _ in events:
                pass


@pytest.mark.requirement("core-busy-told")
async def test_a_reader_that_leaves_frees_the_agent_at_once() -> None:
    async with BY_US(_many(20), buffer=2) as desk:
        events = desk.handler.on_message_send_stream(asked("write"), desk.context)
        first = await anext(events)
        await settled()
        await events.aclose()

        await desk.until(first.id, COMPLETED)


# ── assigned ids ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.requirement("binding-durable-begun-once")
async def test_a_new_task_gets_the_id_that_its_call_was_assigned() -> None:
    async with BY_US(chunks) as desk:
        desk.state["task_id"] = "f" * 32
        task = await desk.send("write")

        assert task.id == "f" * 32
        again = await desk.send("write")
        (streamed,) = await desk.stream("write")
        assert again == streamed == task
        assert desk.agent.asked == ["write"]


@pytest.mark.requirement("binding-durable-begun-once")
async def test_a_call_that_is_handed_over_twice_joins_the_run_of_the_first() -> None:
    async with BY_US(waits) as desk:
        desk.state["task_id"] = "f" * 32
        first = asyncio.create_task(desk.send("write"))
        await desk.agent.begun.wait()
        second = asyncio.create_task(desk.send("write"))
        third = asyncio.create_task(desk.stream("write"))
        assert (await desk.send("write", return_immediately=True)).status.state == WORKING
        desk.agent.gate.set()

        assert await first == await second
        assert shown(await third) == ["working", "completed"]
        assert desk.agent.asked == ["write"]


@pytest.mark.requirement("binding-durable-begun-once", "task-kill-ends-once")
async def test_a_call_whose_process_died_runs_again_on_the_task_as_it_was() -> None:
    store = MemoryTaskStore()
    async with BY_US(waits, task_store=store) as desk:
        desk.state["task_id"] = "f" * 32
        waiting = asyncio.create_task(desk.send("write"))
        await desk.agent.begun.wait()
        await desk.handler.aclose()
        assert (await waiting).status.state == WORKING
        user = desk.user
    async with BY_US(chunks, task_store=store) as desk:
        desk.user, desk.state = user, {"task_id": "f" * 32}
        task = await desk.send("write")

        assert task.status.state == COMPLETED
        assert desk.agent.shown[0] is not None
        assert desk.agent.shown[0].status.state == WORKING


@pytest.mark.requirement("binding-durable-begun-once")
async def test_a_follow_up_keeps_the_id_of_its_task() -> None:
    async with BY_US(asks) as desk:
        question = await desk.send("write")
        desk.state["task_id"] = "f" * 32

        assert (await desk.send(message("red", task_id=question.id))).id == question.id


# ── imports and settings ────────────────────────────────────────────────────────────────────────────


def test_the_handler_imports_none_of_the_sdks_handlers_and_stores() -> None:
    script = (
        "import sys, postroom_a2a.sdk.handling; "
        "print([m for m in sys.modules if m.startswith(('a2a.server.request_handlers', "
        "'a2a.server.tasks', 'a2a.server.agent_execution', 'sqlalchemy'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]", done.stdout


async def test_a_number_that_is_not_positive_is_refused() -> None:
    for wrong in [{"buffer": 0}, {"stall": 0}, {"interrupted_task_timeout": 0}]:
        with pytest.raises(ValueError, match="greater than 0"):
            async with BY_US(chunks, **wrong):
                pass


async def test_an_answer_to_a_task_that_ended_meanwhile_is_refused() -> None:
    async with BY_US(asks) as desk:
        task = await desk.send("write")
        stored = await desk.get(task.id)
        stored.status.state = CANCELED
        await desk.handler._store.save(stored, desk.context)

        with pytest.raises(UnsupportedOperationError, match="terminal"):
            await desk.send(message("red", task_id=task.id))
        assert desk.agent.asked == ["write"]
