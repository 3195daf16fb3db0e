"""Tasks of the SDK over JetStream whose server ends: none is at work for ever, and each says what became of it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from library.nats import taskworker
from library.nats.durableagent import Desk, open_desk
from library.nats.workers import Worker, working
from postroom_a2a.binding.frames import Request
from postroom_a2a.durable.client import DurableCaller
from postroom_a2a.live.calling import new_id

pytestmark = pytest.mark.anyio

FAILED = "TASK_STATE_FAILED"
WORKING = "TASK_STATE_WORKING"


def send(text: str, *, at_once: bool = False, task_id: str = "", streamed: bool = False) -> Request:
    message: dict[str, Any] = {
        "messageId": new_id(),
        "role": "ROLE_USER",
        "parts": [{"text": text}],
    }
    if task_id:
        message["taskId"] = task_id
    params: dict[str, Any] = {"message": message}
    if at_once:
        params["configuration"] = {"returnImmediately": True}
    return Request(new_id(), "SendStreamingMessage" if streamed else "SendMessage", params)


async def task_of(caller: DurableCaller, task_id: str) -> dict[str, Any]:
    response = await caller.call(Request(new_id(), "GetTask", {"id": task_id}), timeout=20)
    assert response.error is None, response.error
    return response.result


async def ended(caller: DurableCaller, task_id: str) -> dict[str, Any]:
    """The task, once nobody works on it."""
    open_states = {"TASK_STATE_SUBMITTED", WORKING}
    async with asyncio.timeout(30):
        while (task := await task_of(caller, task_id))["status"]["state"] in open_states:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return task


def serving(desk: Desk, journal: Path, concurrency: int = 16) -> Any:
    return working(taskworker, desk.server.url, journal, 1.0, concurrency)


async def begun_task(worker: Worker, count: int = 1) -> str:
    """Id of the task of the request that was begun as the `count`th line of the journal."""
    return (await worker.begun(count))[count - 1].split()[2]


@pytest.mark.requirement("binding-durable-begun-once")
async def test_every_task_of_a_server_that_was_killed_has_failed_and_says_why(tmp_path: Path):
    """One whose caller waits, one that was answered at once, one that is late by now, one that was answered further."""
    async with open_desk(tmp_path / "nats") as desk:
        caller = await desk.caller(taskworker.SUBJECT)
        async with serving(desk, tmp_path / "journal") as worker:
            asked = await caller.call(send("d ask 0"), timeout=20)
            further = asked.result["task"]["id"]
            calls = [
                asyncio.create_task(caller.call(request, timeout=30))
                for request in (send("d hold 0", task_id=further), send("a hold 0"))
            ]
            at_once = await caller.call(send("b hold 0", at_once=True), timeout=20)
            late = send("c hold 0")
            late.deadline = time.time() + 1.0
            calls.append(asyncio.create_task(caller.call(late, timeout=30)))
            # The task that asked has a line for its end as well.
            begun = {key: task for word, key, task, _ in map(str.split, await worker.begun(6))}
            assert begun["d"] == further
            assert begun["b"] == at_once.result["task"]["id"]
            async with asyncio.timeout(10):
                while (await task_of(caller, further))["status"]["state"] != WORKING:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await worker.kill()
        async with asyncio.timeout(5):
            while time.time() < late.deadline:  # noqa: ASYNC110 - the server's clock decides
                await asyncio.sleep(0.05)
        async with serving(desk, tmp_path / "journal"):
            answers = [(await call).result["task"] for call in calls]
            assert [answer["id"] for answer in answers] == [begun[key] for key in "dac"]
            assert "ended while" in answers[1]["status"]["message"]["parts"][0]["text"]
            for task_id in begun.values():
                assert (await ended(caller, task_id))["status"]["state"] == FAILED


@pytest.mark.requirement("binding-durable-begun-once")
async def test_a_task_that_was_answered_at_once_fails_when_its_server_ends_in_order(tmp_path: Path):
    async with open_desk(tmp_path / "nats") as desk:
        caller = await desk.caller(taskworker.SUBJECT)
        async with serving(desk, tmp_path / "journal") as worker:
            answer = await caller.call(send("b hold 0", at_once=True), timeout=20)
            assert await worker.end() == 0
        async with serving(desk, tmp_path / "journal"):
            task_id = answer.result["task"]["id"]
            assert (await ended(caller, task_id))["status"]["state"] == FAILED


@pytest.mark.requirement("core-busy-told")
async def test_a_cancel_overtakes_a_backlog_of_200_slow_tasks(tmp_path: Path):
    async with open_desk(tmp_path / "nats") as desk:
        caller = await desk.caller(taskworker.SUBJECT)
        async with serving(desk, tmp_path / "journal", concurrency=4) as worker:
            await caller.call(send("learn work 0"), timeout=20)
            calls = [
                asyncio.create_task(caller.call(send(f"k{n} hold 0"), timeout=60))
                for n in range(200)
            ]
            task_id = await begun_task(worker, 3)
            assert (await task_of(caller, task_id))["id"] == task_id
            answer = await caller.call(Request(new_id(), "CancelTask", {"id": task_id}), timeout=10)
            assert answer.result["status"]["state"] == "TASK_STATE_CANCELED"
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
