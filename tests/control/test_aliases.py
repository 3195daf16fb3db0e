"""A client of a small server for agents, unchanged: its paths and fields are operations of the API."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest

from tests.control.taskroom import TaskRoom, emptied, task_room
from tests.mcp.clients import as_bearer

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


async def agent(
    room: TaskRoom, stack: AsyncExitStack, nick: str, *scopes: str
) -> tuple[str, httpx2.AsyncClient]:
    """An agent's id, and what its client calls with."""
    body = {"nick": f"{nick}-{secrets.token_hex(4)}", "scopes": [*scopes, "read", "send", "task"]}
    made = (await room.api.post("/v1/agents", json=body)).json()
    return made["uid"], await stack.enter_async_context(as_bearer(room, made["key"]["key"]))


async def told(answer: httpx2.Response, status: int = 200) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    return answer.json()


@pytest.mark.requirement("plain-paths")
async def test_messages_are_sent_once_read_and_marked_by_plain_fields(shared: TaskRoom):
    async with emptied(shared) as room, AsyncExitStack() as stack:
        thomas, of_thomas = await agent(room, stack, "thomas")
        chloe, of_chloe = await agent(room, stack, "chloe")
        body = {
            "recipient_id": chloe,
            "subject": "Lunch",
            "body": "At one?",
            "thread_id": None,
            "idempotency_key": "k1",
        }
        sent = await told(await of_thomas.post("/api/messages", json=body), 201)
        again = await told(await of_thomas.post("/api/messages", json=body), 201)
        assert sent["id"] == again["id"]
        (got,) = (await told(await of_chloe.get("/api/inbox?unread=true")))["messages"]
        assert (got["sender_id"], got["recipient_id"]) == (thomas, chloe)
        assert got["sender_name"].startswith("thomas-")
        assert (got["subject"], got["body"], got["read_at"]) == ("Lunch", "At one?", None)
        read = await told(await of_chloe.post(f"/api/messages/{got['id']}/read"))
        assert read["read_at"] is not None
        assert (await told(await of_chloe.get("/api/inbox?unread=true")))["messages"] == []
        shown = await told(await of_thomas.get(f"/api/messages/{sent['id']}"))
        assert shown["read_at"] == read["read_at"]
        assert (await of_thomas.post("/api/messages", json={"body": "x"})).status_code == 422
        assert (await of_thomas.get("/api/inbox", headers={"Authorization": ""})).status_code == 401


@pytest.mark.requirement("plain-paths")
async def test_an_agent_lets_in_by_plain_fields_and_one_without_the_scope_has_its_owner_asked(
    shared: TaskRoom,
):
    async with emptied(shared) as room, AsyncExitStack() as stack:
        alice, of_alice = await agent(room, stack, "alice")
        bob, of_bob = await agent(room, stack, "bob", "grant")
        asked = await told(
            await of_alice.post("/api/authorizations", json={"grantee_id": bob}), 202
        )
        assert asked["text"] == "asked who administers: it counts when they allow it"
        body = {
            "grantee_id": alice,
            "scopes": ["message", "task"],
            "expires_at": "2040-05-03T12:00:00Z",
        }
        late = {**body, "expires_at": "2020-05-03T12:00:00Z"}
        assert (await of_bob.post("/api/authorizations", json=late)).status_code == 422
        made = await told(await of_bob.post("/api/authorizations", json=body), 201)
        assert (made["granter_id"], made["grantee_id"]) == (bob, alice)
        assert made["expires_at"].startswith("2040-05-03T")
        (listed,) = (await told(await of_bob.get("/api/authorizations")))["authorizations"]
        assert (listed["scopes"], listed["revoked_at"]) == (["message", "task"], None)
        ended = await told(await of_bob.delete(f"/api/authorizations/{alice}"))
        assert ended["revoked_at"] is not None
