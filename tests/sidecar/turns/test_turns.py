"""Coding agents take turns: for messages, posts and tasks."""

from __future__ import annotations

import pytest

from postroom.protocol.presence import WorkerState
from postroom_a2a.messages import text_of
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import artifacts_of, status_text
from tests.sidecar.turns.rig import coding, prompts, sessions
from tests.sidecar.worker_rig import WorkerRig, until

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("coding-turns")
async def test_a_message_is_a_turn_and_what_the_agent_says_last_is_the_answer(home: WorkerRig):
    async with coding(home):
        message = await home.write("hello", expects_reply=True)
        await home.seen(message)

    assert [text_of(e.message) for e in home.to_alice()] == ["heard: hello"]
    assert [e.reply_to for e in home.to_alice()] == [message]
    assert "A message for you from @alice" in prompts(home)[0]


async def test_a_task_is_a_turn_and_its_last_text_the_result(home: WorkerRig):
    async with coding(home):
        record = await home.task(await home.request("RUN:[echo done]"), TaskState.COMPLETED)

    assert [artifact["text"] for artifact in artifacts_of(record.task)] == ["ran: done"]


@pytest.mark.requirement("failing-last-word")
async def test_a_turn_that_fails_is_a_failed_task_with_the_agents_reason_its_last_word_until_it_goes_on(
    home: WorkerRig,
):
    async with coding(home):
        failed = await home.task(await home.request("FAIL"), TaskState.FAILED)

        assert "API Error: 500" in status_text(failed.task)
        await home.tap.until(lambda: "API Error: 500" in home.presence().trouble)
        await home.task(await home.request("hello"), TaskState.COMPLETED)
        await home.tap.until(lambda: home.presence().trouble == "")


@pytest.mark.requirement("coding-turns")
async def test_all_turns_are_taken_one_after_the_other_in_one_session(home: WorkerRig):
    async with coding(home):
        tasks = [
            await home.request(f"RUN:[echo {n} >> order; sleep 0.1; echo {n} >> order]")
            for n in range(3)
        ]
        for task in tasks:
            await home.task(task, TaskState.COMPLETED)

    assert (home.folder / "order").read_text().split() == ["0", "0", "1", "1", "2", "2"]
    assert len(sessions(home)) == 1


@pytest.mark.requirement("coding-turns")
async def test_mail_that_comes_while_the_agent_works_waits_undelivered_and_can_be_looked_at(
    home: WorkerRig,
):
    async with coding(home):
        task = await home.request("WAIT:[go] RUN:[postroom-agent inbox]")
        await until((home.folder / "state/home/.coder").exists)
        messages = [await home.write(f"mail {n}", expects_reply=True) for n in range(2)]
        await home.tap.until(lambda: home.presence().waiting == 3)
        assert home.receipts() == []
        (home.folder / "go").touch()
        record = await home.task(task, TaskState.COMPLETED)
        await home.seen(*messages)

    (artifact,) = artifacts_of(record.task)
    assert "mail 0" in artifact["text"]
    assert "mail 1" in artifact["text"]
    assert [text_of(e.message) for e in home.to_alice()] == ["heard: mail 0", "heard: mail 1"]


async def test_mail_that_only_waits_is_not_blamed_for_an_end_of_the_sidecar(home: WorkerRig):
    journal = home.folder / "state" / "confirmed"
    async with coding(home):
        await home.request("WAIT:[go]")
        await home.state(WorkerState.WORKING)
        message = await home.write("patient", expects_reply=True)
        await home.tap.until(lambda: home.presence().waiting == 2)
        assert f"{message} {home.alice.uid} 0\n" in journal.read_text()
        (home.folder / "go").touch()
        await home.seen(message)
        assert f"{message} {home.alice.uid} 1\n" in journal.read_text()

    assert [text_of(e.message) for e in home.to_alice()] == ["heard: patient"]
