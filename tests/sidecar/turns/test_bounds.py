"""Bounds of a coding agent: time, silence, budget; and what becomes of a turn that is ended from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from postroom.protocol.presence import WorkerState
from postroom.protocol.priority import Cancel, Input
from postroom_a2a.messages import ROLE_USER, text_message, text_of
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import artifacts_of, status_text
from tests.sidecar.turns.control import Control, control_plane
from tests.sidecar.turns.rig import coder, coding, prompts, sessions
from tests.sidecar.worker_rig import WorkerRig, end, until

pytestmark = pytest.mark.anyio


@pytest.fixture
async def control() -> AsyncIterator[Control]:
    async with control_plane() as found:
        yield found


async def result(home: WorkerRig, task: str) -> str:
    """The text of the result of a task that has to be completed."""
    record = await home.task(task, TaskState.COMPLETED)
    (artifact,) = artifacts_of(record.task)
    return artifact["text"]


@pytest.mark.requirement("coding-bounds-hold")
async def test_a_turn_that_takes_too_long_is_ended_and_so_is_an_agent_that_heeds_no_interrupt(
    home: WorkerRig,
):
    async with coding(home, turn_limit=2, changes={"cancel_grace": 0.3}):
        slow = await home.task(await home.request("SLOW:[600]"), TaskState.FAILED)
        deaf = await home.task(await home.request("DEAF"), TaskState.FAILED)
        assert await result(home, await home.request("RUN:[echo after]")) == "ran: after"

    assert status_text(slow.task) == status_text(deaf.task) == "the turn took longer than 2 s"
    assert len(sessions(home)) == 1


@pytest.mark.requirement("coding-bounds-hold")
async def test_an_agent_that_says_nothing_is_stalled_until_it_goes_on(
    home: WorkerRig, control: Control
):
    async with coding(home, stall_after=0.3, changes={"control_url": control.url}):
        task = await home.request("SLOW:[1.2] RUN:[echo back]")
        await home.state(WorkerState.STALLED)
        assert "no sign of the agent" in home.presence().detail
        assert await result(home, task) == "slept 1.2; ran: back"
        await control.until(lambda: len(control.of("stalled")) > 1)

    assert [event["seconds"] > 0 for event in control.of("stalled")[:2]] == [True, False]


@pytest.mark.requirement("coding-bounds-hold")
async def test_a_spent_budget_refuses_tasks_and_keeps_messages_over_a_restart_until_it_is_raised(
    home: WorkerRig,
):
    config = home.config("", agent=coder(budget_tokens=500))
    process = await home.start(config)
    assert await result(home, await home.request("USE:[600]")) == "used 600"
    refused = await home.task(await home.request("RUN:[echo no]"), TaskState.FAILED)
    assert status_text(refused.task) == "the budget is spent: 600 of 500 tokens"
    await home.tap.until(lambda: "budget" in home.alerts())
    await end(process)

    process = await home.start(config)
    again = await home.task(await home.request("RUN:[echo no]"), TaskState.FAILED)
    assert "the budget is spent" in status_text(again.task)
    message = await home.write("hello", expects_reply=True)
    await home.tap.until(lambda: "the budget is spent" in home.presence().detail)
    await end(process)
    assert home.receipts(message) in ([], ["delivered"])

    process = await home.start(home.config("", agent=coder(budget_tokens=5000)))
    await home.seen(message)
    await end(process)
    assert [text_of(e.message) for e in home.to_alice()] == ["heard: hello"]


async def test_a_canceled_task_interrupts_its_turn_and_the_agent_lives_on(home: WorkerRig):
    async with coding(home):
        task = await home.request("SLOW:[600]")
        await until(lambda: bool(prompts(home)) if (home.folder / "state/home").exists() else False)
        await home.overtake(Cancel(task, "enough"))
        canceled = await home.task(task, TaskState.CANCELED)
        assert await result(home, await home.request("RECALL")) != ""

    assert status_text(canceled.task) == "enough"
    assert len(sessions(home)) == 1


@pytest.mark.requirement("coding-session-survives-sigkill")
async def test_an_agent_that_dies_in_its_turn_gets_the_work_again_in_the_same_session(
    home: WorkerRig,
):
    async with coding(home):
        task = await home.request("DIE:[died] RECALL")
        assert (await result(home, task)).endswith("has 2 prompts")
        message = await home.write("DIE:[died-too]", expects_reply=True)
        await home.seen(message)

    assert [text_of(e.message) for e in home.to_alice()] == ["lived on"]
    assert len(sessions(home)) == 1
    assert "go on where you were" in prompts(home)[1]


async def test_an_agent_that_dies_each_time_is_given_up_with_an_alert(home: WorkerRig):
    agent = coder() | {"restart_limit": 1}
    async with home.sidecar("", agent=agent):
        failed = await home.task(await home.request("DIE"), TaskState.FAILED)
        await home.state(WorkerState.FAILED)

    assert "killed by signal 9" in status_text(failed.task) or "the agent" in status_text(
        failed.task
    )
    assert "agent-failed" in home.alerts()


async def test_a_session_that_is_gone_is_given_up_for_a_new_one(home: WorkerRig):
    config = home.config("", agent=coder())
    process = await home.start(config)
    await result(home, await home.request("RUN:[echo one]"))
    await end(process)
    (old,) = sessions(home)
    (home.folder / "state/home/.coder" / f"{old}.jsonl").unlink()

    process = await home.start(config)
    assert await result(home, await home.request("RUN:[echo two]")) == "ran: two"
    await end(process)
    assert len(sessions(home)) == 1
    assert old not in sessions(home)


async def test_a_turn_that_only_waits_for_an_answer_makes_room_and_goes_on_with_the_answer(
    home: WorkerRig,
):
    async with coding(home):
        task = await home.request("ASK:[which?]")
        await home.task(task, TaskState.INPUT_REQUIRED)
        other = await home.request("RUN:[echo other]")
        assert await result(home, other) == "ran: other"
        await home.overtake(Input(task, text_message("b" * 32, "this one", role=ROLE_USER)))

        assert await result(home, task) == "heard: this one"
    assert len(sessions(home)) == 1


async def test_a_task_that_the_agent_settles_by_its_shell_keeps_that_end(home: WorkerRig):
    async with coding(home):
        task = await home.request("RUN:[postroom-agent fail 'cannot be done']")
        failed = await home.task(task, TaskState.FAILED)
        assert status_text(failed.task) == "cannot be done"
        assert await result(home, await home.request("RUN:[echo next]")) == "ran: next"

    await asyncio.sleep(0)
