"""The A2A client against the SDK's server on a real socket: each binding, both versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from postroom import errors
from postroom.http.exchange import outbound_exchange
from postroom_a2a.http.client import A2AClient
from postroom_a2a.http.client_attempts import Calling
from tests.remote.foreign import Foreign, foreign

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("a2a-client-speaks")]

SPOKEN = {
    "rpc": ("/rpc", "JSONRPC", "1.0"),
    "rest": ("/rest", "HTTP+JSON", "1.0"),
    "rpc03": ("/rpc", "JSONRPC", "0.3"),
}
CALLING = Calling(outbound_exchange(None))


@pytest.fixture(scope="module", params=list(SPOKEN))
async def server(request: pytest.FixtureRequest) -> AsyncGenerator[Foreign]:
    async with foreign(SPOKEN[request.param]) as served:
        yield served


@pytest.fixture
async def client(server: Foreign) -> A2AClient:
    server.agent.gate.clear()
    server.agent.begun.clear()
    return await A2AClient.open(server.url, CALLING)


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"parts": [{"text": text}], **more}


def text_of(task: dict[str, Any]) -> str:
    return "".join(p["text"] for artifact in task["artifacts"] for p in artifact["parts"])


async def test_a_task_is_sent_and_read_again(client: A2AClient):
    assert client.streams
    message = said("a poem", messageId="m-1") | {
        "parts": [
            {"text": "a poem"},
            {"data": [1, {"x": None}]},
            {"url": "https://x.example/y", "mediaType": "text/x", "filename": "y"},
            {"raw": "eHg=", "mediaType": "text/x"},
        ]
    }
    task = (await client.send(message))["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    again = await client.get(task["id"])
    assert text_of(again).startswith("one a poem")
    parts = again["history"][0]["parts"]
    assert [min(part) for part in parts] == ["text", "data", "filename", "mediaType"]
    assert parts[1]["data"] == [1, {"x": None}]
    with pytest.raises(errors.NotFound):
        await client.get("no-such-task")
    with pytest.raises(errors.Conflict):
        await client.cancel(task["id"])


async def test_a_task_is_streamed(client: A2AClient):
    found = [event async for event in client.stream(said("a poem"))]
    kinds = [next(iter(event)) for event in found]
    assert kinds[0] == "task"
    assert kinds.count("artifactUpdate") == 2
    assert found[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert found[-1]["statusUpdate"]["status"]["message"]["role"] == "ROLE_AGENT"


async def test_a_question_is_answered(client: A2AClient):
    asked = (await client.send(said("ask me")))["task"]
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    ids = {"taskId": asked["id"], "contextId": asked["contextId"]}
    done = (await client.send(said("the red one", **ids)))["task"]
    assert done["id"] == asked["id"]
    assert "the red one" in text_of(done)


async def test_a_running_task_is_subscribed_to_and_canceled(client: A2AClient, server: Foreign):
    task = (await client.send(said("wait for me"), wait=False))["task"]["id"]
    await server.agent.begun.wait()
    async with aclosing(client.subscribe(task)) as events:
        first = await anext(events)
        assert first["task"]["id"] == task
        canceling = asyncio.create_task(client.cancel(task))
        rest = [event async for event in events]
    assert (await canceling)["status"]["state"] == "TASK_STATE_CANCELED"
    assert rest[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
    shown = [event async for event in client.subscribe(task)]
    assert shown[-1]["task"]["status"]["state"] == "TASK_STATE_CANCELED"


async def test_push_configs_are_set_read_and_removed(client: A2AClient, server: Foreign):
    task = (await client.send(said("wait for me"), wait=False))["task"]["id"]
    known = {"scheme": "Bearer", "credentials": "k"}
    config = {"id": "c1", "url": "https://me.example/hook", "authentication": known}
    set_ = await client.set_push(task, config)
    assert (set_["id"], set_["url"]) == ("c1", "https://me.example/hook")
    assert (await client.push(task, "c1"))["authentication"]["scheme"] == "Bearer"
    assert [each["id"] for each in (await client.pushes_of(task))["configs"]] == ["c1"]
    await client.unset_push(task, "c1")
    assert not (await client.pushes_of(task)).get("configs")
    server.agent.gate.set()


async def test_tasks_are_listed_where_the_version_has_that(client: A2AClient):
    sent = (await client.send(said("a poem", contextId="listed")))["task"]
    if client.interface.version == "0.3":
        with pytest.raises(errors.Conflict):
            await client.list()
        return
    page = await client.list(contextId="listed", pageSize=10)
    assert sent["id"] in [task["id"] for task in page["tasks"]]
