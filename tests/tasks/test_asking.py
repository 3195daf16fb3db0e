"""Tasks that ask, or that their agent does not offer: alerts, answers over every door, and refusals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from postroom.protocol.envelope import TaskRequest
from postroom.protocol.priority import Input
from postroom.protocol.tasks import SKILL
from postroom_a2a.messages import text_message, text_of
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import KEY, SECONDS, Hand, TaskRoom, emptied, task_room
from tests.rig import new_uid
from tests.tasks.test_retries import asked_over_the_bus

pytestmark = pytest.mark.anyio

NOW = {"returnImmediately": True}
ASKING = [TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED]


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


async def over_a2a(room: TaskRoom, ref: str, method: str, **params: Any) -> dict[str, Any]:
    """What the A2A address of an agent answers over HTTP."""
    headers = {"A2A-Version": "1.0", "X-API-Key": KEY}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with httpx2.AsyncClient(timeout=SECONDS) as client:
        answer = await client.post(
            f"http://{room.site.host}/a2a/{ref}/", json=body, headers=headers
        )
    return answer.json()["result"]


async def answered(
    room: TaskRoom, door: str, asker: Hand, worker: Hand, task: str
) -> dict[str, Any]:
    """Answer a task over a door."""
    match door:
        case "api":
            return await room.post(f"/{task}/answer", text="blue")
        case "a2a":
            message = text_message(new_uid(), "blue") | {"taskId": task, "role": "ROLE_USER"}
            return await over_a2a(
                room, worker.uid, "SendMessage", message=message, configuration=NOW
            )
    return await asker.ask("answer", task=task, message=text_message(new_uid(), "blue"))


@pytest.mark.requirement("task-answer-resumes")
@pytest.mark.parametrize("door", ["api", "a2a", "bus"])
async def test_a_task_that_asks_is_an_alert_and_the_answer_over_any_door_resumes_it(
    shared: TaskRoom, door: str
):
    async with emptied(shared) as room:
        alice, bob = await room.worker("alice"), await room.worker("bob")
        await alice.listen()
        for state in ASKING:
            if door == "bus":
                task = await asked_over_the_bus(room, bob, alice, TaskRequest())
            else:
                task = (await room.delegate("@alice"))["id"]
            await alice.take(task)
            await alice.say(task, TaskState.WORKING, attempt=1)
            await alice.say(task, state, "which colour?")
            await room.parts.fold.settled(SECONDS)
            asks = "asks to be let in for" if state is TaskState.AUTH_REQUIRED else "asks about"
            text = f"{asks} task {task[:8]}: which colour?; postroom task answer {task[:8]} TEXT"
            assert ("alice", text) in await room.alerts()

            answering = asyncio.create_task(answered(room, door, bob, alice, task))
            while not isinstance((heard := (await alice.next())[1]), Input):
                pass  # beside it, that the request waits
            assert (heard.task, text_of(heard.message)) == (task, "blue")
            await alice.answered(task, heard.message)
            await answering

            assert (await room.row(task)).state == "working"
            assert ("alice", text) not in await room.alerts()


@pytest.mark.requirement("task-retry")
async def test_an_a2a_client_that_asks_for_a_skill_that_the_card_has_not_is_told_so(
    shared: TaskRoom,
):
    async with emptied(shared) as room:
        skill = {"id": "count", "name": "Count", "description": "Counts words.", "tags": ["text"]}
        body = {"nick": f"otto-{new_uid()[:6]}", "card": {"skills": [skill]}}
        otto = (await room.api.post("/v1/agents", json=body)).json()["uid"]

        async def sent(skill: str) -> dict[str, Any]:
            message = text_message(new_uid(), "do it") | {"role": "ROLE_USER"}
            message |= {"metadata": {SKILL: skill}}
            task = await over_a2a(room, otto, "SendMessage", message=message, configuration=NOW)
            await room.parts.fold.settled(SECONDS)
            return (await over_a2a(room, otto, "GetTask", id=task["task"]["id"]))["status"]

        refused, taken = await sent("paint"), await sent("count")

        assert refused["state"] == "TASK_STATE_REJECTED"
        assert text_of(refused["message"]) == "the card does not offer 'paint'; it offers: count"
        assert taken["state"] == "TASK_STATE_SUBMITTED"
        await room.api.delete(f"/v1/agents/{otto}")


async def test_the_metadata_of_a_message_names_a_skill_by_a_text(shared: TaskRoom):
    async with emptied(shared) as room:
        alice = await room.worker("alice")
        message = text_message(new_uid(), "do it") | {"role": "ROLE_USER", "metadata": {SKILL: 3}}
        headers = {"A2A-Version": "1.0", "X-API-Key": KEY}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        async with httpx2.AsyncClient(timeout=SECONDS) as client:
            answer = await client.post(
                f"http://{room.site.host}/a2a/{alice.uid}/", json=body, headers=headers
            )

        assert json.loads(answer.content)["error"]["code"] == -32602
