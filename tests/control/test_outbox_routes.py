"""The routes of announcements: each in its caller's name, read page by page and live by whoever may read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx2
import pytest

from postroom.protocol.principal import ALL_SCOPES, KEY, OPERATOR_KEY, Principal, Scope
from tests.control.taskroom import SECONDS, TaskRoom, task_room

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("client-stream-resumes")]


@pytest.fixture(scope="module")
async def room(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


async def bearer(room: TaskRoom, nick: str, *scopes: Scope) -> dict[str, str]:
    """The header of a new external agent with a key for those scopes."""
    agent = await room.parts.directory.register(nick, "external")
    owner = room.owner
    me = Principal(owner.uid, owner.org, owner.nick, owner.kind, ALL_SCOPES, KEY, OPERATOR_KEY)
    made = await room.parts.iam.create_key(me, agent.uid, scopes=scopes)
    return {"Authorization": f"Bearer {made.secret}"}


async def announce(room: TaskRoom, headers: dict[str, str], text: str) -> httpx2.Response:
    return await room.api.post("/v1/announcements", json={"text": text}, headers=headers)


async def outbox(room: TaskRoom, nick: str, **page: Any) -> dict[str, Any]:
    return (await room.api.get(f"/v1/agents/{nick}/outbox", params=page)).json()


async def test_an_external_agent_announces_in_its_own_name_and_only_with_the_scope(room: TaskRoom):
    sends = await bearer(room, "teller", Scope.SEND)
    reads = await bearer(room, "reader", Scope.READ)
    said = (await announce(room, sends, "from outside")).json()

    assert (said["from"]["nick"], said["text"]) == ("teller", "from outside")
    refused = await announce(room, reads, "no")
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
    path = "/v1/agents/teller/outbox"
    assert (await room.api.get(path, headers=reads)).json()["announcements"] == [said]
    assert (await room.api.get(path, headers=sends)).status_code == 403
    assert (await room.api.get("/v1/agents/nobody/outbox", headers=reads)).status_code == 404
    assert (await outbox(room, "reader")) == {"announcements": [], "next": None}


async def test_an_outbox_has_pages_in_both_directions(room: TaskRoom):
    sends = await bearer(room, "pages", Scope.SEND)
    for number in range(5):
        assert (await announce(room, sends, str(number))).status_code == 201

    async def texts(**page: Any) -> tuple[list[str], int | None]:
        found = await outbox(room, "pages", **page)
        return [one["text"] for one in found["announcements"]], found["next"]

    newest, before = await texts(limit=2)
    assert newest == ["3", "4"]
    assert (await texts(limit=2, before=before))[0] == ["1", "2"]
    oldest, after = await texts(limit=3, after=0)
    assert oldest == ["0", "1", "2"]
    assert await texts(limit=3, after=after) == (["3", "4"], None)


async def followed(room: TaskRoom, nick: str, after: int) -> AsyncIterator[dict[str, Any]]:
    path = f"/v1/agents/{nick}/outbox/stream"
    async with room.api.stream("GET", path, params={"after": after}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


async def test_a_follower_who_comes_back_with_a_sequence_gets_each_further_announcement_once(
    room: TaskRoom,
):
    sends = await bearer(room, "live", Scope.SEND)
    await announce(room, sends, "a")
    async with asyncio.timeout(SECONDS):
        first = followed(room, "live", 0)
        known = await anext(first)
        await announce(room, sends, "b")
        assert [known["text"], (await anext(first))["text"]] == ["a", "b"]
        await announce(room, sends, "c")
        again = followed(room, "live", known["seq"])
        assert [(await anext(again))["text"] for _ in range(2)] == ["b", "c"]
        await announce(room, sends, "d")
        assert (await anext(again))["text"] == "d"
