"""What a caller over a limit meets: at a real listener, with a real key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from postroom.protocol.principal import Scope
from tests.control.taskroom import SECONDS, TaskRoom, emptied, task_room
from tests.control.test_keys import Person, followed, person

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("caller-limits")]


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    bounds = {
        "limit_requests": 0.01,  # none comes back while a test looks
        "limit_burst": 12,
        "limit_strangers": 1,
        "limit_streams": 2,
        "limit_tasks": 4,
    }
    async with task_room(tmp_path_factory.mktemp("room"), **bounds) as room:
        yield room


@pytest.fixture
async def room(shared: TaskRoom) -> AsyncGenerator[TaskRoom]:
    async with emptied(shared) as room:
        yield room


async def head_of(room: TaskRoom, secret: str, path: str = "/v1/tasks") -> str:
    """The head of the answer to a POST whose body of 1 MiB never comes."""
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", room.site.port)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {room.site.host}\r\nAuthorization: Bearer {secret}\r\n"
            "Content-Type: application/json\r\nContent-Length: 1048576\r\n\r\n"
        )
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()
    return answer.decode().lower()


async def upgraded(room: TaskRoom, secret: str) -> str:
    """The head of the answer to a request for a WebSocket."""
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", room.site.port)
        head = (
            f"GET /v1/workers/{room.owner.uid}/sdk-events/stream HTTP/1.1\r\n"
            f"Host: {room.site.host}\r\nAuthorization: Bearer {secret}\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()
    return answer.decode().lower()


async def exhaust(ann: Person) -> None:
    async with asyncio.timeout(SECONDS):
        while await ann.status() == 200:
            pass


@pytest.mark.parametrize("path", ["/v1/me", "/v1/agents", "/v1/openapi.json?x", "/v1/messages"])
async def test_a_key_over_its_rate_gets_429_and_when_to_come_again(
    room: TaskRoom, path: str
) -> None:
    async with person(room, "ann", *Scope) as ann:
        await exhaust(ann)
        answer = await ann.api.get(path)
        if "openapi" in path:  # open to everybody
            assert answer.status_code == 200
            return
        assert answer.status_code == 429
        wait = answer.headers["retry-after"]
        assert 1 <= int(wait) <= 100
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "too-many-requests"
        assert f"again in {wait} s" in answer.json()["remedy"]
        assert (await room.api.get(path)).status_code == 200  # the operator goes on


async def test_a_refused_request_is_answered_before_its_body_comes(room: TaskRoom) -> None:
    async with person(room, "ann", *Scope) as ann:
        await exhaust(ann)
        for path in (
            "/v1/tasks",
            "/v1/blobs",
            "/v1/workers",
        ):  # hot, streamed, and of the framework
            answer = await head_of(room, ann.secret, path)
            assert answer.startswith("http/1.1 429 "), path
            assert "\r\nretry-after: " in answer
    answer = await head_of(room, "nobody's", "/v1/workers")
    assert answer.startswith(("http/1.1 401 ", "http/1.1 429 "))


async def test_guesses_of_one_address_are_refused_before_a_key_is_looked_up(
    room: TaskRoom,
) -> None:
    async with person(room, "ann", *Scope) as ann:
        assert await ann.status() == 200
        given = []
        async with asyncio.timeout(SECONDS):
            while not given or given[-1] != 429:
                refused = await room.api.get("/v1/me", headers={"Authorization": "Bearer no"})
                given.append(refused.status_code)
        assert set(given) <= {401, 429}
        assert refused.json()["code"] == "too-many-requests"
        assert await ann.status() == 200  # from the same address


async def test_a_key_has_so_many_streams_and_no_more(room: TaskRoom) -> None:
    in_flight = room.parts.installation.in_flight
    async with person(room, "ann", *Scope) as ann, asyncio.timeout(SECONDS):
        opened = asyncio.Semaphore(0)
        streams = [asyncio.create_task(followed(ann.api, "/v1/events", opened)) for _ in "ab"]
        for _ in streams:
            await opened.acquire()
        third = await ann.api.get("/v1/events")
        assert third.status_code == 429
        assert "2 open streams" in third.json()["detail"]
        assert (await upgraded(room, ann.secret)).startswith("http/1.1 429 ")
        assert await ann.status() == 200

        streams.pop().cancel()
        while in_flight.limits._streams[ann.key_id] > 1:
            assert await room.api.get("/v1/me")  # each call gives the ended stream its turn
        streams.append(asyncio.create_task(followed(ann.api, "/v1/events", opened)))
        await opened.acquire()
        for each in streams:
            each.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        while ann.key_id in in_flight.limits._streams:
            assert await room.api.get("/v1/me")


@pytest.mark.requirement("open-tasks-bounded")
async def test_an_agent_has_so_many_open_tasks_and_no_more(room: TaskRoom) -> None:
    await room.worker("busy", start=False)
    for at in range(4):
        task = await room.delegate("@busy", f"task {at}", key=f"key {at}")
        await room.folded("INBOX")
    refused = await room.delegate("@busy", "one more")
    assert (refused["status"], refused["code"]) == (429, "refused")
    assert "4 open tasks" in refused["detail"]
    assert "postroom task list --worker @busy" in refused["remedy"]

    again = await room.delegate("@busy", "task 3", key="key 3")
    assert again["id"] == task["id"]
    await room.post(f"/{task['id']}/cancel")
    await room.folded("TASKS")
    assert "id" in await room.delegate("@busy", "one more")
