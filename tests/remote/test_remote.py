"""Tasks for agents of other people: a post room's control plane, and servers of the A2A SDK on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from postroom.remote.task import Patience
from tests.control.taskroom import SECONDS, TaskRoom, task_room
from tests.remote.foreign import Foreign, foreign
from tests.remote.scripted import Scripted, scripted

pytestmark = pytest.mark.anyio

QUICK = Patience(away=1.0, retry=0.01, longest_retry=0.05, first=0.05, longest=0.1, asking=0.1)


@pytest.fixture(scope="module")
async def servers() -> AsyncGenerator[dict[str, Foreign]]:
    async with AsyncExitStack() as stack:
        yield {
            "streams": await stack.enter_async_context(foreign(name="Poet")),
            "polled": await stack.enter_async_context(foreign(name="Polled", streaming=False)),
            "old": await stack.enter_async_context(foreign(("/rpc", "JSONRPC", "0.3"), name="Old")),
        }


@pytest.fixture(scope="module")
async def script() -> AsyncGenerator[Scripted]:
    async with scripted() as served:
        yield served


@pytest.fixture(scope="module")
async def room(
    tmp_path_factory: pytest.TempPathFactory, servers: dict[str, Foreign], script: Scripted
) -> AsyncGenerator[TaskRoom]:
    ports = [each.url.rpartition(":")[2] for each in (*servers.values(), script)]
    private = tuple(f"127.0.0.1:{port}" for port in ports)
    async with task_room(tmp_path_factory.mktemp("room"), egress_private=private) as running:
        running.parts.remote_work.patience = QUICK
        yield running


class House:
    def __init__(self, room: TaskRoom) -> None:
        self.room = room
        self.added: list[str] = []

    async def add(self, url: str, status: int = 201, **more: Any) -> dict[str, Any]:
        answered = await self.room.api.post("/v1/agents/remote", json={"url": url, **more})
        assert answered.status_code == status, answered.text
        if status == 201:
            self.added.append(answered.json()["uid"])
        return answered.json()

    async def until(self, task: dict[str, Any], *states: str) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            seq = 0
            while True:
                found = await self.room.get(f"/{task['id']}", wait="changed", after=seq, timeout=5)
                if found["state"] in states:
                    return found
                seq = found["seq"]

    async def ended(self, task: dict[str, Any]) -> dict[str, Any]:
        return await self.room.get(f"/{task['id']}", wait="final", timeout=SECONDS)


@pytest.fixture
async def house(room: TaskRoom, servers: dict[str, Foreign]) -> AsyncGenerator[House]:
    for server in servers.values():
        server.agent.gate.clear()
        server.agent.begun.clear()
        server.seen.clear()
        server.keys.clear()
    house = House(room)
    yield house
    for server in servers.values():
        server.agent.gate.set()
    for uid in house.added:
        await room.api.delete(f"/v1/agents/{uid}")


@pytest.fixture(params=["streams", "polled", "old"])
def server(request: pytest.FixtureRequest, servers: dict[str, Foreign]) -> Foreign:
    return servers[request.param]


def text_of(task: dict[str, Any]) -> str:
    return "".join(artifact["text"] for artifact in task["artifacts"])


@pytest.mark.requirement("remote-tasks")
async def test_a_task_goes_there_and_its_result_comes_back(house: House, server: Foreign):
    made = await house.add(server.url)
    assert made["kind"] == "external"
    assert made["nick"] == server.card.name.lower()
    assert made["online"]
    assert made["card"]["skills"][0]["id"] == "write"
    task = await house.ended(await house.room.delegate(f"@{made['nick']}", "a poem"))
    assert (task["state"], task["status_text"]) == ("completed", "done")
    assert text_of(task) == "one a poem"
    assert task["worker"]["nick"] == made["nick"]
    again = await house.add(server.url)
    assert (again["uid"], again["added"]) == (made["uid"], False)


@pytest.mark.requirement("remote-tasks")
async def test_a_question_is_answered_here_and_the_answer_goes_there(house: House, server: Foreign):
    made = await house.add(server.url)
    task = await house.room.delegate(made["uid"], "ask me")
    asking = await house.until(task, "input-required")
    assert asking["status_text"] == "which one?"
    await house.room.post(f"/{task['id']}/answer", text="the red one")
    done = await house.ended(task)
    assert done["state"] == "completed"
    assert "the red one" in text_of(done)


@pytest.mark.requirement("remote-tasks")
async def test_a_cancel_here_cancels_there(house: House, server: Foreign):
    made = await house.add(server.url)
    task = await house.room.delegate(made["uid"], "wait for me")
    await server.agent.begun.wait()
    running = await house.until(task, "working")
    assert running["state"] == "working"
    async with asyncio.timeout(SECONDS):
        while True:
            how = (await house.room.get(f"/{task['id']}")).get("followed", "")
            if how.startswith("followed by " + ("stream" if server.streams else "poll every")):
                break
    before = len(server.agent.canceled)
    canceled = await house.room.post(f"/{task['id']}/cancel", reason="enough")
    assert canceled["state"] == "canceled"
    async with asyncio.timeout(SECONDS):
        while len(server.agent.canceled) == before:  # noqa: ASYNC110 (the SDK tells nobody)
            await asyncio.sleep(0.01)


async def test_a_failure_there_is_a_failure_here(house: House, server: Foreign):
    made = await house.add(server.url)
    task = await house.ended(await house.room.delegate(made["uid"], "fail please"))
    assert (task["state"], task["status_text"]) == ("failed", "cannot do that")
