"""What a caller over a limit meets: at a real listener, with a real key."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from postroom.control.limits import MARKS, PIECE
from postroom.identity.tokens import OperatorKey, new_api_key
from postroom.protocol.limits import MAX_API_KEYS
from postroom.protocol.principal import Scope
from tests.control.taskroom import SECONDS, TaskRoom, emptied, task_room
from tests.control.test_keys import Person, bearer, followed, person

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("caller-limits")]


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    bounds = {
        "limit_requests": 0.01,  # none comes back while a test looks
        "limit_burst": 12,
        "limit_strangers": 60,
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


@pytest.mark.requirement("caller-limits", "mend-bodies-wait")
async def test_a_large_body_counts_as_more_than_one_request(room: TaskRoom) -> None:
    await room.worker("busy", start=False)
    async with person(room, "ann", *Scope) as ann:
        text = "x" * (13 * PIECE)
        sent = await ann.api.post("/v1/messages", json={"to": "@busy", "text": text})
        assert sent.status_code == 201
        refused = await ann.api.get("/v1/me")
        assert refused.status_code == 429
        assert (await room.api.get("/v1/me")).status_code == 200
    async with person(room, "bea", *Scope) as bea:
        values = {"data": [0] * 9 * MARKS}
        sent = await bea.api.post("/v1/messages", json={"to": "@busy", "parts": [values]})
        assert sent.status_code == 201
        assert [await bea.status() for _ in range(3)][-1] == 429


async def test_a_content_that_streams_counts_as_one_request_whatever_its_size(
    room: TaskRoom,
) -> None:
    async with person(room, "ann", *Scope) as ann:
        stored = await ann.api.post("/v1/blobs", content=b"," * 13 * PIECE)
        assert stored.status_code == 201
        assert await ann.status() == 200


@pytest.mark.requirement("caller-limits")
async def test_a_body_that_comes_in_pieces_and_without_a_length_is_counted(room: TaskRoom) -> None:
    async def pieces() -> AsyncGenerator[bytes]:
        yield b'{"to":"@nobody","text":"'
        for _ in range(13):
            yield b"x" * PIECE
        yield b'"}'

    async with person(room, "ann", *Scope) as ann:
        kind = {"Content-Type": "application/json"}
        sent = await ann.api.post("/v1/messages", content=pieces(), headers=kind)
        assert sent.status_code == 404
        assert await ann.status() == 429


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


@pytest.mark.requirement("owner-way-in")
async def test_a_valid_key_is_taken_while_a_hundred_dead_ones_of_its_agent_are_tried_for_ever(
    room: TaskRoom,
) -> None:
    """All from one address, none of them pauses, and the valid key has never been shown before."""
    async with person(room, "ann", *Scope) as ann:
        refused: Counter[int] = Counter()
        tried = asyncio.Semaphore(0)

        async def try_for_ever() -> None:
            async with bearer(room, new_api_key(ann.uid)) as dead:
                while True:
                    refused[(await dead.get("/v1/me")).status_code] += 1
                    tried.release()

        clients = [asyncio.create_task(try_for_ever()) for _ in range(100)]
        async with asyncio.timeout(60):
            for _ in clients:  # more than may come at once
                await tried.acquire()
            for _ in range(5):
                assert await ann.status() == 200
                room.parts.gate.limits._known.clear()  # as if its key came for the first time
            before, begun = refused.total(), time.monotonic()
            for _ in clients:
                await tried.acquire()
        for each in clients:
            each.cancel()
        await asyncio.gather(*clients, return_exceptions=True)
    assert set(refused) == {401, 429}
    # Each of them waits a second for a refusal.
    assert refused.total() - before <= len(clients) * (time.monotonic() - begun + 2)


@pytest.mark.requirement("owner-way-in")
async def test_the_operators_key_is_taken_while_dead_ones_that_name_it_are_tried(
    tmp_path: Path,
) -> None:
    async with task_room(tmp_path, limit_strangers=0.2) as room:
        owner = room.owner.uid
        for _ in range(2):
            wrong = {"Authorization": f"Bearer {new_api_key(owner)}"}
            refused = await room.api.get("/v1/me", headers=wrong)
        assert refused.status_code == 429
        key = room.parts.iam._operator = OperatorKey(tmp_path / "key", new_api_key(owner))
        async with bearer(room, key.text) as operator:
            assert (await operator.get("/v1/me")).status_code == 200


@pytest.mark.requirement("key-scopes-demanded")
async def test_a_person_replaces_keys_at_a_bounded_rate(tmp_path: Path) -> None:
    async with task_room(tmp_path) as room, person(room, "ann", Scope.READ) as ann:
        key, secret, made = ann.key_id, ann.secret, 0
        while True:
            async with bearer(room, secret) as api:
                answer = await api.post(f"/v1/keys/{key}/rotate")
            if answer.status_code != 201:
                break
            key, secret, made = answer.json()["id"], answer.json()["key"], made + 1
        assert answer.status_code == 429
        assert answer.json()["code"] == "too-many-requests"
        assert MAX_API_KEYS <= made < 2 * MAX_API_KEYS


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


@pytest.mark.requirement("caller-limits")
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
