"""The A2A address of the control plane, over a real room and real HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from postroom_a2a.task_state import TaskState
from tests.control.taskroom import TaskRoom, emptied, task_room

pytestmark = pytest.mark.anyio

VERSION = {"A2A-Version": "1.0"}
NOW = {"returnImmediately": True}


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


def said(message_id: str, text: str = "do it", **more: Any) -> dict[str, Any]:
    parts = [{"text": text}]
    return {"messageId": message_id, "role": "ROLE_USER", "parts": parts, **more}


async def call(
    room: TaskRoom, ref: str, method: str, headers: dict[str, str] = VERSION, **params: Any
) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = await room.api.post(f"/a2a/{ref}/", json=body, headers=headers)
    return answer.json()


async def stream(room: TaskRoom, ref: str, method: str, last: str = "", **params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = VERSION | ({"Last-Event-ID": last} if last else {})
    async with room.api.stream("POST", f"/a2a/{ref}", json=body, headers=headers) as answer:
        assert answer.headers["content-type"] == "text/event-stream", await answer.aread()
        number = ""
        async for line in answer.aiter_lines():
            if line.startswith("id: "):
                number = line[4:]
            elif line.startswith("data: "):
                yield number, json.loads(line[6:])["result"]


async def test_a_client_sends_follows_and_reads_a_task(shared: TaskRoom):
    async with emptied(shared) as room:
        bob = await room.worker("bob")
        card = (await room.api.get("/a2a/bob/.well-known/agent-card.json")).json()
        assert card["url"] == f"http://{room.site.host}/a2a/{bob.uid}"
        events = stream(room, "bob", "SendStreamingMessage", message=said("m1"))
        _, first = await anext(events)
        task = first["task"]["id"]
        await bob.take(task)
        await bob.say(task, TaskState.WORKING, "at it", attempt=1)
        await bob.make(task, "42")
        await bob.say(task, TaskState.COMPLETED, "done")
        rest = [event async for event in events]
        assert [kind for _, event in rest for kind in event] == [
            "statusUpdate",
            "artifactUpdate",
            "statusUpdate",
        ]
        again = stream(room, bob.uid, "SubscribeToTask", rest[0][0], id=task)
        assert [event async for event in again] == rest[1:]
        got = await call(room, bob.uid, "GetTask", id=task)
        assert got["result"]["status"]["state"] == "TASK_STATE_COMPLETED"
        done = await call(room, "bob", "SubscribeToTask", id=task)
        assert done["error"]["code"] == -32004
        listed = await call(room, "bob", "ListTasks")
        assert listed["result"]["totalSize"] == 1
        missing = await room.api.post("/a2a/nobody/", json={}, headers=VERSION)
        assert missing.json()["error"]["code"] == -32600
        async with httpx2.AsyncClient() as stranger:
            url = f"http://{room.site.host}/a2a/bob/.well-known/agent-card.json"
            assert (await stranger.get(url)).status_code == 401
