"""A session gives a task by a tool: its question and its result come to it as mail, once, also after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from postroom.control.task_mail import TaskMail
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import SECONDS, TaskRoom, task_room
from tests.mcp.clients import as_bearer, id_in

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("mcp-same-operation")]


@pytest.fixture(scope="module")
async def room(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as running:
        yield running


async def called(app: httpx2.AsyncClient, tool: str, **arguments: Any) -> str:
    params = {"name": tool, "arguments": arguments}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await app.post("/mcp", json=asked, headers={"accept": "application/json"})
    result = answer.json()["result"]
    assert not result["isError"], result
    return result["content"][0]["text"]


async def mail_after(app: httpx2.AsyncClient, seq: int) -> dict[str, Any]:
    params = {"wait": SECONDS, "after": seq, "unread": True}
    (mail,) = (await app.get("/v1/inbox", params=params)).json()["messages"]
    return mail


async def test_a_session_gets_question_and_result_of_its_task_as_mail_and_answers_by_reply(
    room: TaskRoom,
):
    body = {"client": "claude", "key": "s1", "nick": "app"}
    # The operator is a person, too.
    made = (await room.api.post("/v1/sessions", json=body)).json()
    coder = await room.worker("coder")
    async with as_bearer(room, made["api_key"]["key"]) as app:
        task = id_in(await called(app, "a2a_delegate_task", to="@coder", text="Choose a shape."))
        await coder.take(task)
        await coder.say(task, TaskState.WORKING)
        await coder.say(task, TaskState.INPUT_REQUIRED, "List or map?")
        asked = await mail_after(app, 0)
        assert (asked["from"]["uid"], asked["expects_reply"]) == (coder.uid, False)
        assert "List or map?" in asked["text"]
        assert f"To answer: tool a2a_reply, message {task}." in asked["text"]

        said = await called(app, "a2a_reply", message=task, text="A list.")
        assert said == f"Accepted: the answer for task {task}."

        await coder.say(task, TaskState.WORKING)
        await coder.make(task, "It is a list.")
        await coder.say(task, TaskState.COMPLETED)
        done = await mail_after(app, asked["seq"])
        assert done["text"] == f"Task {task} is completed.\nIt is a list."

        news = TaskMail(
            room.parts.changes,
            room.parts.sessions,
            room.parts.tasks,
            room.parts.office,
            lambda _uid: "work/coder",
        )
        again = asyncio.create_task(news.run())  # as after a restart, and with more to say
        other = id_in(await called(app, "a2a_delegate_task", to="@coder", text="Once more."))
        await coder.refuse(other, "no time")
        last = await mail_after(app, done["seq"])
        assert f"Task {other} is rejected." in last["text"]
        again.cancel()
        await asyncio.wait([again])
        found = (await app.get("/v1/inbox", params={"after": 0})).json()["messages"]
        assert [each["id"] for each in found] == [asked["id"], done["id"], last["id"]]
