"""What an agent may not do alone, by tools of MCP and by a worker's door: its owner is asked, and then it is done."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import pytest

from tests.approvals.test_acts import became
from tests.control.taskroom import TaskRoom, door_of, emptied, task_room
from tests.control.test_sessions import House, Terminal, house_of
from tests.mcp.clients import as_bearer

pytestmark = pytest.mark.anyio

URL = "https://hooks.example/mail"


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as room:
        yield room


@pytest.fixture
async def house(shared: TaskRoom) -> AsyncGenerator[House]:
    async with house_of(shared) as made:
        yield made


async def tool(house: House, app: Terminal, name: str, **arguments: Any) -> str:
    asked = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments},
    }
    async with as_bearer(house.room, app.shown["api_key"]["key"]) as api:
        answer = await api.post(
            "/mcp?tools=all", json=asked, headers={"accept": "application/json"}
        )
    result = answer.json()["result"]
    assert not result.get("isError"), result
    return result["content"][0]["text"]


async def allowed(room: TaskRoom, api: httpx2.AsyncClient) -> dict[str, Any]:
    """The one approval that waits for a person, once they have allowed it and it is done."""
    (asked,) = (await api.get("/v1/approvals")).json()["approvals"]
    body = {"type": "control_response", "id": asked["id"], "decision": "allowed"}
    said = await api.post(f"/v1/workers/{asked['worker']['uid']}/control", json=body)
    assert said.status_code == 200, said.text
    shown = await became(room, asked["id"])
    assert shown["became"]["done"], shown
    return shown


async def grants(api: httpx2.AsyncClient) -> list[dict[str, Any]]:
    return (await api.get("/v1/grants")).json()["grants"]


@pytest.mark.requirement("acts-of-agents")
async def test_a_session_lets_in_once_its_owner_allows_it_and_takes_it_back_alone(house: House):
    anna, bob = await house.person("anna"), await house.person("bob")
    app = await house.session(anna)

    said = await tool(house, app, "a2a_authorize", agent="@bob", scopes=["message", "task"])
    assert said.startswith("asked @anna: it counts when they allow it (approval ")
    assert await grants(app.api) == []
    shown = await allowed(house.room, anna.api)
    assert shown["title"] == "let @bob in to @app for message, task, for ever"
    assert shown["input"]["grantee"] == bob.uid
    (made,) = await grants(app.api)
    assert (made["grantee"]["nick"], made["scopes"]) == ("bob", ["message", "task"])

    assert f"{made['id']}: @app has let in @bob for message, task (valid)" in await tool(
        house, app, "a2a_list_authorizations"
    )
    assert "(revoked)" in await tool(house, app, "a2a_revoke_authorization", grant="@bob")
    assert await grants(app.api) == []


@pytest.mark.requirement("acts-of-agents")
async def test_what_is_allowed_is_whom_it_was_asked_for_whoever_has_the_name_then(house: House):
    anna = await house.person("anna")
    app, first = await house.session(anna), await house.session(anna, "two", "helper")
    await tool(house, app, "a2a_authorize", agent="@helper")
    renamed = await first.api.post(f"/v1/agents/{first.uid}/rename", json={"nick": "former"})
    assert renamed.status_code == 200
    await house.session(anna, "three", "helper")

    await allowed(house.room, anna.api)
    (made,) = await grants(app.api)
    assert made["grantee"]["uid"] == first.uid


@pytest.mark.requirement("acts-of-agents")
async def test_a_session_is_reached_by_all_again_when_its_owner_allows_it(house: House):
    anna = await house.person("anna")
    app = await house.session(anna)
    assert (await app.api.put("/v1/grants/only", json={"grants_only": True})).status_code == 200
    off = await app.api.put("/v1/grants/only", json={"grants_only": False})
    assert off.status_code == 202
    assert (await app.api.get("/v1/grants/only")).json()["grants_only"] is True
    await allowed(house.room, anna.api)
    assert (await app.api.get("/v1/grants/only")).json()["grants_only"] is False


@pytest.mark.requirement("acts-of-agents")
async def test_a_session_asks_for_a_webhook_and_its_owner_has_the_secret(house: House):
    anna = await house.person("anna")
    app = await house.session(anna)
    said = await tool(house, app, "a2a_set_webhook", url=URL, events=["message.received", "task"])
    assert "asked @anna" in said
    again = await app.api.post("/v1/webhooks", json={"url": "https://10.0.0.1/"})
    assert again.status_code == 422  # nobody is asked for what cannot be
    shown = await allowed(house.room, anna.api)
    assert shown["title"] == f"tell {URL} what happens to @app: message.received, task"

    (hook,) = (await anna.api.get("/v1/webhooks")).json()["webhooks"]
    assert (hook["owner"]["uid"], hook["url"]) == (app.uid, URL)
    assert (await app.api.post(f"/v1/webhooks/{hook['id']}/rotate")).status_code == 403
    rotated = await anna.api.post(f"/v1/webhooks/{hook['id']}/rotate")
    assert rotated.json()["secret"].startswith("whsec_")
    assert (await app.api.delete(f"/v1/webhooks/{hook['id']}")).status_code == 204


@pytest.mark.requirement("acts-of-agents")
async def test_a_worker_asks_by_its_door_and_who_administers_answers(shared: TaskRoom):
    async with emptied(shared) as room:
        worker, other = await room.worker("alice"), await room.worker("bob")
        async with door_of(room, worker) as door:
            asked = await door.post("/v1/grants", json={"grantee": "@bob", "expires_in": 86400})
            assert (asked.status_code, asked.json()["of"]) == (202, None)
            assert asked.json()["text"] == "asked who administers: it counts when they allow it"
            shown = await allowed(room, room.api)
            assert shown["title"] == ("let @bob in to @alice for message, for 1 days from then")
            (made,) = await grants(door)
            assert made["grantee"]["uid"] == other.uid
            ended = await door.delete(f"/v1/grants/{made['id']}")
            assert ended.json()["state"] == "revoked"
