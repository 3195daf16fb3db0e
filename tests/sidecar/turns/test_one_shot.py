"""Coding agents whose program is started for each turn."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from postroom.protocol.limits import MAX_TURN_LINE_BYTES
from postroom.protocol.priority import Cancel
from postroom_a2a.messages import text_of
from postroom_a2a.task_state import TaskState
from postroom_a2a.tasks import artifacts_of, status_text
from tests.prefork import Forked
from tests.sidecar.turns.control import Control, control_plane
from tests.sidecar.turns.rig import CODER, TURNS, prompts, sessions
from tests.sidecar.worker_rig import Silence, WorkerRig, end, until

pytestmark = pytest.mark.anyio

ONE_SHOT = CODER.with_name("one_shot.py")


@pytest.fixture
async def control() -> AsyncIterator[Control]:
    async with control_plane() as found:
        yield found


def agent(adapter: str = "codex-exec", **turns: Any) -> dict[str, Any]:
    """The agent's configuration."""
    return {
        "adapter": adapter,
        "command": [sys.executable, str(ONE_SHOT)],
        "turns": TURNS | turns,
    }


@asynccontextmanager
async def running(home: WorkerRig, **changes: Any) -> AsyncGenerator[Forked]:
    """A running sidecar with the scripted agent."""
    async with home.sidecar("", **{"agent": agent(), **changes}) as process:
        yield process


async def result(home: WorkerRig, task: str) -> str:
    """The text of the result of a task that has to be completed."""
    record = await home.task(task, TaskState.COMPLETED)
    (artifact,) = artifacts_of(record.task)
    return artifact["text"]


def file_of_session(home: WorkerRig) -> Path:
    """The file of the only session there is."""
    (session,) = sessions(home)
    return home.folder / "state" / "home" / ".coder" / f"{session}.jsonl"


def working(home: WorkerRig, number: int = 1) -> bool:
    """Whether so many prompts were read."""
    folder = home.folder / "state" / "home" / ".coder"
    return folder.exists() and len(prompts(home)) >= number


@pytest.mark.requirement("coding-turns")
@pytest.mark.parametrize("adapter", ["codex-exec", "gemini", "goose", "opencode"])
async def test_each_turn_is_a_run_of_the_program_and_all_are_in_one_session(
    home: WorkerRig, control: Control, adapter: str
):
    async with running(home, agent=agent(adapter), control_url=control.url):
        message = await home.write("hello", expects_reply=True)
        await home.seen(message)
        assert await result(home, await home.request("a task")) == "heard: a task"
        await control.until(lambda: len(control.of("result")) == 2)

    assert [text_of(e.message) for e in home.to_alice()] == ["heard: hello"]
    assert [e.reply_to for e in home.to_alice()] == [message]
    assert len(sessions(home)) == 1
    assert len(prompts(home)) == 2
    assert [event["resumed"] for event in control.of("started")] == [False, True]
    used = [(event["input_tokens"], event["output_tokens"]) for event in control.of("usage")]
    assert used == [(100, 10), (100, 10)]


async def test_mail_waits_undelivered_for_the_end_of_the_run_before(home: WorkerRig):
    async with running(home):
        task = await home.request("WAIT:[go]")
        await until(lambda: working(home))
        messages = [await home.write(f"mail {n}", expects_reply=True) for n in range(2)]
        await home.tap.until(lambda: home.presence().waiting == 3)
        assert home.receipts() == []
        assert len(prompts(home)) == 1
        (home.folder / "go").touch()
        await home.task(task, TaskState.COMPLETED)
        await home.seen(*messages)

    assert [text_of(e.message) for e in home.to_alice()] == ["heard: mail 0", "heard: mail 1"]


async def test_a_cancel_interrupts_the_run_and_the_next_one_goes_on_in_the_session(home: WorkerRig):
    async with running(home):
        task = await home.request("SLOW")
        await until(lambda: working(home))
        await home.overtake(Cancel(task, "enough"))
        canceled = await home.task(task, TaskState.CANCELED)
        assert (home.folder / "interrupted").exists()
        assert await result(home, await home.request("next")) == "heard: next"

    assert status_text(canceled.task) == "enough"
    assert len(sessions(home)) == 1


async def test_a_task_that_is_canceled_while_its_program_is_being_started_is_never_told_to_it(
    home: WorkerRig,
):
    silence = home.silent["cards find"] = Silence()
    async with running(home, agent=agent(instructions=True)):
        task = await home.request("SLOW")
        await silence.asked.wait()
        await home.overtake(Cancel(task, "not that"))
        await home.pending("PRIORITY", (0, 1))  # the sidecar has it, before the answer below
        silence.over.set()
        canceled = await home.task(task, TaskState.CANCELED)
        assert await result(home, await home.request("next")) == "heard: next"

    assert status_text(canceled.task) == "not that"
    assert len(prompts(home)) == 1


async def test_a_run_that_ends_without_a_result_fails_its_task_with_its_last_words(home: WorkerRig):
    async with running(home):
        failed = await home.task(await home.request("QUIT:[3]"), TaskState.FAILED)
        message = await home.write("still there?", expects_reply=True)
        await home.seen(message)

    assert status_text(failed.task) == "exit code 3: out of tokens"
    assert [text_of(e.message) for e in home.to_alice()] == ["heard: still there?"]


async def test_a_line_over_the_limit_is_reported_and_the_answer_behind_it_is_heard(
    home: WorkerRig, control: Control
):
    async with running(home, control_url=control.url):
        task = await home.request(f"BIG:[{MAX_TURN_LINE_BYTES + 1}]")
        assert (await result(home, task)).startswith("heard: BIG")
        await control.until(lambda: control.of("result"))

    assert [event["code"] for event in control.of("error")] == ["overlong"]


@pytest.mark.requirement("coding-session-survives-sigkill")
async def test_after_sigkill_of_a_run_or_of_the_sidecar_the_work_goes_on_in_the_same_session(
    home: WorkerRig,
):
    config = home.config("", agent=agent())
    process = await home.start(config)
    assert (await result(home, await home.request("DIE:[died]"))).startswith("heard: DIE")
    task = await home.request("WAIT:[go]")
    await until(lambda: working(home, 3))
    process.kill()
    await process.wait()
    (home.folder / "go").touch()

    process = await home.start(config)
    assert (await result(home, task)).startswith("heard: WAIT")
    await end(process)
    assert len(sessions(home)) == 1
    assert ["go on where you were" in prompt for prompt in prompts(home)] == [False, True] * 2


async def test_a_session_that_is_gone_is_given_up_for_a_new_one(home: WorkerRig):
    async with running(home):
        await result(home, await home.request("one"))
        old = file_of_session(home)
        old.unlink()
        assert await result(home, await home.request("two")) == "heard: two"

    assert file_of_session(home) != old
