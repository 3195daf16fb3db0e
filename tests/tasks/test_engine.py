"""The engine over a real log: what is written, in which order, and what becomes of a task whose runner is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postroom.errors import Conflict, LostUpdate, MessageTooLarge, NotFound
from postroom.protocol import subjects
from postroom.protocol.tasks import chain_headers, task_id
from postroom.tasks.execution import Execution
from postroom.tasks.log import AttemptLost, TaskLog
from postroom.tasks.records import MAX_TASK_BYTES
from postroom_a2a.messages import ROLE_USER, text_message, text_of
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import (
    answer_in,
    answer_update,
    artifacts_of,
    new_task,
    status_text,
    text_artifact,
)
from tests.rig import Rig, new_uid, running_bus
from tests.tasks.enginedesk import Script, done, running_desk

pytestmark = pytest.mark.anyio


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running_bus(tmp_path) as found:
        yield found


async def for_ever(_: Execution) -> None:
    await asyncio.get_running_loop().create_future()


def once(rest: Script) -> Script:
    """A script whose first runner is gone before it said anything."""
    begun: list[str] = []

    async def script(execution: Execution) -> None:
        begun.append(execution.id)
        if len(begun) == 1:
            raise AttemptLost("it was killed by signal 9")
        await rest(execution)

    return script


@pytest.mark.requirement("task-request-runs-once")
async def test_each_record_names_the_one_that_it_follows(rig: Rig) -> None:
    async def script(execution: Execution) -> None:
        await execution.say(TaskState.WORKING, "half of it")
        await execution.result(text_artifact("a", "one"), append=False, last=False)
        await execution.result(text_artifact("a", " two"), append=True, last=True)
        await execution.say(TaskState.COMPLETED, "done")

    async with running_desk(rig, script) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.COMPLETED)

        states = await desk.log.states(task)
        assert states == ["working", "working", "working", "working", "completed"]
        assert await desk.log.stored(task) == len(states)
        last = (await desk.log.get(task)).record
        assert artifacts_of(last.task) == [{"id": "a", "name": "", "text": "one two"}]
        assert (last.attempt, last.lost) == (1, 0)


@pytest.mark.requirement("task-request-runs-once")
async def test_the_same_request_again_is_the_same_task_and_runs_once(rig: Rig) -> None:
    async with running_desk(rig) as desk:
        ask = desk.request("do it")
        task = await desk.give(ask)
        await desk.log.until(task, TaskState.COMPLETED)

        assert await desk.give(ask) == task

        other = await desk.ask("something else")
        await desk.log.until(other, TaskState.COMPLETED)
        assert desk.executor.begun == [task, other]


async def test_the_same_request_to_a_later_start_runs_once(rig: Rig) -> None:
    async with running_desk(rig) as first:
        ask = first.request("do it")
        task = await first.give(ask)
        await first.log.until(task, TaskState.COMPLETED)

    async with running_desk(rig, bus=first.bus, alice=first.alice) as second:
        await second.give(ask)

        assert second.executor.begun == []
        assert await second.log.states(task) == ["working", "completed"]


async def ends_silently(_: Execution) -> None:
    return


async def test_a_task_that_fills_its_record_can_still_end(rig: Rig) -> None:
    async with running_desk(rig, ends_silently) as desk:
        small = desk.request("")
        named = task_id(desk.log.worker, desk.alice, small.request)
        room = MAX_TASK_BYTES - len(json.dumps(new_task(named, named, small.message, 0.0)))
        message = text_message(small.request, "x" * room, role=ROLE_USER)
        task = await desk.give(desk.request("", id=small.request, message=message))
        await desk.log.until(task, TaskState.FAILED)

        assert await desk.text(task) == "the agent ended its work without a result"
        other = await desk.ask("the next one")
        await desk.log.until(other, TaskState.FAILED)


async def test_a_task_that_fills_its_record_is_begun_again_with_its_request(rig: Rig) -> None:
    asked: list[str] = []

    async def script(execution: Execution) -> None:
        asked.append(text_of(execution.request))
        await execution.say(TaskState.COMPLETED)

    async with running_desk(rig, once(script)) as desk:
        small = desk.request("")
        named = task_id(desk.log.worker, desk.alice, small.request)
        room = MAX_TASK_BYTES - len(json.dumps(new_task(named, named, small.message, 0.0))) - 200
        message = text_message(small.request, "x" * room, role=ROLE_USER)
        task = await desk.give(desk.request("", id=small.request, message=message))
        await desk.log.until(task, TaskState.COMPLETED)

        assert asked == ["x" * room]
        assert desk.executor.begun == [task, task]


async def test_a_request_with_a_context_that_is_too_long_is_rejected_and_says_why(rig: Rig) -> None:
    async with running_desk(rig) as desk:
        new = "0" * 32
        message = text_message(new, "do it", role=ROLE_USER) | {"contextId": "x" * 257}
        task = await desk.give(desk.request("", id=new, message=message))
        record = await desk.log.until(task, TaskState.REJECTED)

        assert status_text(record.task).startswith("a context id has at most 256 characters")
        assert record.task["contextId"] == task


@pytest.mark.requirement("task-queue-keeps-order")
async def test_tasks_are_done_in_the_order_of_their_requests(rig: Rig) -> None:
    async with running_desk(rig, here=False) as desk:
        asked = [await desk.ask(f"number {number}") for number in range(40)]
        desk.executor.here.set()
        await desk.log.until(asked[-1], TaskState.COMPLETED)

        assert desk.executor.begun == asked


@pytest.mark.requirement("task-kill-ends-once")
async def test_a_task_whose_runner_is_gone_is_begun_again_and_says_so(rig: Rig) -> None:
    async with running_desk(rig, once(done)) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.COMPLETED)

        records = [record for _, record in await desk.log.records(task)]
        assert [(r.state.value, r.attempt, r.lost) for r in records] == [
            ("working", 1, 0),
            ("working", 2, 1),
            ("completed", 2, 1),
        ]
        assert status_text(records[1].task) == "begun again: it was killed by signal 9"


async def test_a_task_that_loses_its_runner_three_times_has_failed(rig: Rig) -> None:
    async def script(_: Execution) -> None:
        raise AttemptLost("exit code 1")

    async with running_desk(rig, script) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.FAILED)

        assert len(desk.executor.begun) == 3
        assert await desk.text(task) == "lost 3 times, last: exit code 1"


@pytest.mark.requirement("task-kill-ends-once")
async def test_a_later_start_takes_over_what_was_begun(rig: Rig) -> None:
    async with running_desk(rig, for_ever) as first:
        begun = await first.ask("begun")
        await first.log.until(begun, TaskState.WORKING)
        waiting = await first.ask("waiting")

    async with running_desk(
        rig, bus=first.bus, alice=first.alice, recover=(begun, waiting)
    ) as second:
        await second.log.until(waiting, TaskState.COMPLETED)

        last = (await second.log.get(begun)).record
        assert (last.state, last.attempt, last.lost) == (TaskState.COMPLETED, 2, 1)
        last = (await second.log.get(waiting)).record
        assert (last.state, last.attempt, last.lost) == (TaskState.COMPLETED, 1, 0)


async def test_a_runner_that_stops_on_purpose_loses_nothing(rig: Rig) -> None:
    stop = asyncio.Event()

    async def script(_: Execution) -> None:
        await stop.wait()
        raise AttemptLost("the agent ended: exit code 0")

    async with running_desk(rig, script) as first:
        task = await first.ask("do it")
        await first.log.until(task, TaskState.WORKING)
        first.engine.stop()
        stop.set()
        await first.engine.settled(10)

        assert (await first.log.get(task)).record.released

    async with running_desk(rig, bus=first.bus, alice=first.alice, recover=(task,)) as second:
        last = await second.log.until(task, TaskState.COMPLETED)
        assert (last.attempt, last.lost) == (2, 0)


@pytest.mark.requirement("task-request-runs-once")
async def test_who_is_overtaken_stops_and_writes_no_more(rig: Rig) -> None:
    go = asyncio.Event()
    refused: list[type[Exception]] = []

    async def script(execution: Execution) -> None:
        await go.wait()
        for _ in range(2):
            try:
                await execution.say(TaskState.COMPLETED, "mine")
            except (LostUpdate, Conflict) as error:
                refused.append(type(error))

    async with (
        running_desk(rig, script) as old,
        running_desk(rig, bus=old.bus, alice=old.alice, here=False) as new,
    ):
        task = await old.ask("do it")
        await old.log.until(task, TaskState.WORKING)
        new.engine.recover(task, TaskState.WORKING)
        new.executor.here.set()
        await new.log.until(task, TaskState.COMPLETED)
        go.set()
        other = await old.ask("another one")
        await old.log.until(other, TaskState.COMPLETED)

        assert refused[:2] == [LostUpdate, Conflict]
        assert await new.text(task) == "done"
        assert await new.log.states(task) == ["working", "working", "completed"]
        assert await new.log.stored(task) == 3


async def test_what_is_said_before_a_task_was_handed_over_does_not_touch_it(rig: Rig) -> None:
    said: list[asyncio.Task[None]] = []

    async def fail_the_present_one() -> None:
        await desk.engine.execution().say(TaskState.FAILED, "meant for another one")

    def changed() -> None:
        if desk.engine.executions:  # its `working` record is not stored yet
            said.append(asyncio.create_task(fail_the_present_one()))

    async with running_desk(rig, changed=changed, here=False) as desk:
        task = await desk.ask("do it")
        desk.executor.here.set()
        await desk.log.until(task, TaskState.COMPLETED)

        [early] = await asyncio.gather(*said, return_exceptions=True)
        assert isinstance(early, NotFound)
        assert await desk.log.states(task) == ["submitted", "working", "completed"]
        assert await desk.log.stored(task) == 3


async def test_nothing_follows_a_final_state(rig: Rig) -> None:
    async def script(execution: Execution) -> None:
        await execution.say(TaskState.COMPLETED, "done")
        with pytest.raises(Conflict):
            await execution.say(TaskState.WORKING, "and more")
        with pytest.raises(Conflict):
            await execution.result(text_artifact("late", "x"), append=False, last=True)

    async with running_desk(rig, script) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.COMPLETED)
        other = await desk.ask("another one")
        await desk.log.until(other, TaskState.COMPLETED)

        assert await desk.log.stored(task) == 2


@pytest.mark.requirement("task-queue-keeps-order")
async def test_a_running_task_is_interrupted_by_a_cancel(rig: Rig) -> None:
    async with running_desk(rig, for_ever) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.WORKING)

        await desk.engine.cancel(task, desk.alice, "never mind")

        assert await desk.log.states(task) == ["working", "canceled"]
        assert await desk.text(task) == "never mind"


async def test_a_waiting_task_is_canceled_without_being_begun(rig: Rig) -> None:
    async with running_desk(rig, for_ever) as desk:
        first = await desk.ask("first")
        await desk.log.until(first, TaskState.WORKING)
        second = await desk.ask("second")

        await desk.engine.cancel(second, desk.alice)

        assert await desk.log.states(second) == ["submitted", "canceled"]
        assert desk.engine.waiting == 0
        assert desk.executor.begun == [first]


async def test_a_cancel_that_overtakes_its_request_is_not_lost(rig: Rig) -> None:
    async with running_desk(rig) as desk:
        ask = desk.request("do it")
        task = await desk.give(desk.request("to know the id"))  # some other task
        early = task_id(desk.log.worker, ask.requester, ask.request)
        desk.log.asks[early] = ask
        await desk.engine.cancel(early, desk.alice)
        await desk.give(ask)
        await desk.log.until(task, TaskState.COMPLETED)

        assert await desk.log.states(early) == ["canceled"]
        assert early not in desk.executor.begun


async def test_a_stranger_cancels_and_answers_nothing(rig: Rig) -> None:
    async with running_desk(rig, for_ever) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.WORKING)
        stranger = new_uid()

        await desk.engine.cancel(task, stranger)
        await desk.engine.answer(task, stranger, text_message("m", "yes"))

        assert await desk.log.states(task) == ["working"]


@pytest.mark.requirement("task-answer-resumes")
async def test_an_answer_resumes_the_same_task(rig: Rig) -> None:
    heard: list[str] = []

    async def script(execution: Execution) -> None:
        if execution.heard is None:
            await execution.say(TaskState.INPUT_REQUIRED, "which one?")
            return
        heard.append(text_of(execution.heard))
        await execution.say(TaskState.COMPLETED, "done")

    async with running_desk(rig, script) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.INPUT_REQUIRED)
        between = await desk.ask("another one")
        await desk.log.until(between, TaskState.INPUT_REQUIRED)

        await desk.engine.answer(task, desk.alice, text_message("m", "the red one", role=ROLE_USER))
        await desk.log.until(task, TaskState.COMPLETED)

        assert heard == ["the red one"]
        history = (await desk.log.get(task)).record.task["history"]
        assert [text_of(m) for m in history] == ["do it", "which one?", "the red one"]
        answered = (await desk.log.records(task))[2][1]
        assert answer_in(answered.event or {}) == "the red one"
        states = ["working", "input-required", "working", "completed"]
        assert await desk.log.states(task) == states


async def test_a_question_outlives_the_worker(rig: Rig) -> None:
    async def ask(execution: Execution) -> None:
        await execution.say(TaskState.INPUT_REQUIRED, "which one?")

    async with running_desk(rig, ask) as first:
        task = await first.ask("do it")
        await first.log.until(task, TaskState.INPUT_REQUIRED)

    async with running_desk(rig, bus=first.bus, alice=first.alice, recover=(task,)) as second:
        assert second.executor.begun == []
        await second.engine.answer(task, first.alice, text_message("m", "the red one"))
        last = await second.log.until(task, TaskState.COMPLETED)
        assert (last.attempt, last.lost) == (1, 0)


@pytest.mark.requirement("task-answer-resumes")
async def test_what_was_answered_for_a_worker_that_started_meanwhile_is_gone_on_with(
    rig: Rig,
) -> None:
    async def script(execution: Execution) -> None:
        if execution.attempt == 1:
            await execution.say(TaskState.INPUT_REQUIRED, "which one?")
        else:
            await execution.say(TaskState.COMPLETED, "done")

    async with running_desk(rig, script) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.INPUT_REQUIRED)
        asked, answer = await desk.log.get(task), text_message("m", "the red one")
        event = answer_update(asked.record.task, 1.0, answer)
        after = asked.record.then(event, heard=answer, runner="postroom", released=True)
        await TaskLog(desk.bus, desk.log, worker=desk.bus.uid, run="x").append(
            after, asked.sequence
        )

        await desk.engine.answer(task, desk.alice, answer)
        await desk.engine.answer(task, desk.alice, answer)

        last = await desk.log.until(task, TaskState.COMPLETED)
        assert (last.attempt, last.lost) == (2, 0)


async def test_a_canceled_question_is_forgotten(rig: Rig) -> None:
    async def ask(execution: Execution) -> None:
        await execution.say(TaskState.INPUT_REQUIRED, "which one?")

    async with running_desk(rig, ask) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.INPUT_REQUIRED)

        await desk.engine.cancel(task, desk.alice)
        await desk.engine.answer(task, desk.alice, text_message("m", "the red one"))

        assert await desk.log.states(task) == ["working", "input-required", "canceled"]
        assert desk.executor.forgotten == [task]


@pytest.mark.requirement("task-retry")
async def test_what_the_worker_does_not_offer_is_rejected(rig: Rig) -> None:
    async with running_desk(rig, refuse=lambda ask: f"no {ask.skill} here") as desk:
        task = await desk.ask("do it", skill="cook")

        assert await desk.log.states(task) == ["rejected"]
        assert await desk.text(task) == "no cook here"
        assert desk.executor.begun == []


async def test_a_request_too_large_for_a_task_is_rejected(rig: Rig) -> None:
    async with running_desk(rig) as desk:
        task = await desk.ask("x" * MAX_TASK_BYTES)

        assert await desk.log.states(task) == ["rejected"]
        assert "limit" in await desk.text(task)


async def test_a_result_that_is_too_large_is_refused_and_the_task_goes_on(rig: Rig) -> None:
    async def script(execution: Execution) -> None:
        big = text_artifact("a", "x" * MAX_TASK_BYTES)
        with pytest.raises(MessageTooLarge):
            await execution.result(big, append=False, last=True)
        await execution.say(TaskState.COMPLETED, "without it")

    async with running_desk(rig, script) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.COMPLETED)

        assert await desk.text(task) == "without it"


@pytest.mark.parametrize("end", ["fails", "is canceled", "is lost"])
async def test_a_task_that_is_full_to_the_brim_still_ends(rig: Rig, end: str) -> None:
    async def fill(execution: Execution) -> None:
        text = "x" * MAX_TASK_BYTES
        while len(text) > 10:
            try:
                await execution.result(text_artifact("a", text), append=True, last=False)
            except MessageTooLarge:
                text = text[: len(text) // 2]
        full.set()
        if end == "is canceled":
            await for_ever(execution)
        if end == "is lost":
            raise AttemptLost("exit code 1")

    full = asyncio.Event()
    async with running_desk(rig, fill) as desk:
        task = await desk.ask("do it")
        await full.wait()
        if end == "is canceled":
            await desk.engine.cancel(task, desk.alice, "too much")

        last = await desk.log.until(
            task, TaskState.CANCELED if end == "is canceled" else TaskState.FAILED
        )
        assert status_text(last.task)
        other = await desk.ask("another one")
        await desk.log.until(other, TaskState.WORKING)


async def test_work_that_ends_without_a_result_has_failed(rig: Rig) -> None:
    async def script(_: Execution) -> None:
        return

    async with running_desk(rig, script) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.FAILED)

        assert await desk.text(task) == "the agent ended its work without a result"


async def test_when_nobody_will_work_again_the_begun_task_has_failed_and_the_rest_waits(
    rig: Rig,
) -> None:
    async def script(_: Execution) -> None:
        desk.executor.gone = True
        raise AttemptLost("exit code 0")

    async with running_desk(rig, script, here=False) as desk:
        begun, waiting = await desk.ask("begun"), await desk.ask("waiting")
        desk.executor.here.set()
        await desk.log.until(begun, TaskState.FAILED)

        assert await desk.text(begun) == "exit code 0"
        assert await desk.log.states(waiting) == ["submitted"]


@pytest.mark.requirement("task-kill-ends-once")
@pytest.mark.slow
async def test_a_record_is_stored_once_though_the_server_is_killed_again_and_again(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path, memory=False) as rig:
        said = asyncio.Event()

        async def script(execution: Execution) -> None:
            for number in range(60):
                await execution.say(TaskState.WORKING, f"step {number}")
                if number % 20 == 10:
                    said.set()
            await execution.say(TaskState.COMPLETED, "done")

        async with running_desk(rig, script) as desk:
            task = await desk.ask("do it")
            for _ in range(3):
                await said.wait()
                said.clear()
                await rig.restart(kill=True)
            await desk.log.until(task, TaskState.COMPLETED)

            texts = [status_text(r.task) for _, r in await desk.log.records(task)]
            assert texts == ["", *(f"step {n}" for n in range(60)), "done"]
            assert await desk.log.stored(task) == len(texts)


async def test_a_record_without_its_place_in_the_chain_counts_for_nothing(rig: Rig) -> None:
    async with running_desk(rig, for_ever) as desk:
        task = await desk.ask("do it")
        await desk.log.until(task, TaskState.WORKING)
        forged = (await desk.log.get(task)).record
        subject = subjects.task(desk.bus.uid, task, "completed")
        with pytest.raises(LostUpdate):
            await desk.bus.publish(
                subject, forged.encode(), metadata=chain_headers(desk.bus.uid, task, 0)
            )
        await desk.bus.publish(subject, forged.encode())

        assert await desk.log.states(task) == ["working"]
