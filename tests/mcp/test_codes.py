"""New keys by MCP: the agent gets a code that opens nothing, and its owner claims the key with it, once."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator

import httpx2
import pytest

from postroom.directory import claims
from tests.control.taskroom import TaskRoom, task_room
from tests.mcp.clients import Session, as_bearer, session

pytestmark = pytest.mark.anyio
CODE = re.compile(r"Code ((?:[a-z0-9]{5}-){3}[a-z0-9]{5}) ")


@pytest.fixture(scope="module")
async def room(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as running:
        yield running


async def code_of(app: Session, tool: str, **arguments: str) -> str:
    found = CODE.search(await app.call(tool, **arguments))
    assert found
    return found[1]


async def claim(api: httpx2.AsyncClient, code: str, status: int = 201) -> dict:
    answer = await api.post("/v1/keys/claim", json={"code": code})
    assert answer.status_code == status, answer.text
    return answer.json()


async def person(room: TaskRoom, nick: str) -> httpx2.AsyncClient:
    made = (await room.api.post("/v1/people", json={"nick": nick})).json()
    return as_bearer(room, made["key"]["key"])


@pytest.mark.requirement("mcp-key-by-code")
async def test_a_code_gives_a_new_key_to_its_owner_once_and_the_former_key_ends(room: TaskRoom):
    async with session(room, "app", query="?tools=all") as app:
        first = await code_of(app, "a2a_rotate_api_key")
        code = await code_of(app, "a2a_rotate_api_key")
        await claim(room.api, first, 404)  # the later one has taken its place

        await claim(app.api, code, 404)  # the agent itself cannot use it
        async with await person(room, "eve") as eve:
            await claim(eve, code, 404)  # nor can a person who neither owns nor administers
        made = await claim(room.api, code)
        await claim(room.api, code, 404)

        assert made["agent"]["uid"] == app.uid
        assert (await app.api.get("/v1/me")).status_code == 401
        async with as_bearer(room, made["key"]) as again:
            me = (await again.get("/v1/me")).json()
        assert (me["uid"], me["scopes"]) == (app.uid, ["read", "send", "task"])
        assert not [said for said in app.heard if made["key"] in said]


async def renamed(app: httpx2.AsyncClient) -> None:
    """A session names itself otherwise, by a tool."""
    params = {"name": "a2a_set_capabilities", "arguments": {"nick": "counter"}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = await app.post("/mcp", json=asked, headers={"accept": "application/json"})
    assert "@counter" in answer.json()["result"]["content"][0]["text"]


@pytest.mark.requirement("mcp-key-by-code")
async def test_the_owner_of_a_session_claims_its_key_and_those_that_it_asks_for(room: TaskRoom):
    async with await person(room, "maria2") as maria, session(room, "other") as other:
        body = {"client": "claude", "key": "s1", "nick": "room-app", "folder": "/srv/app"}
        made = (await maria.post("/v1/sessions", json=body)).json()
        async with as_bearer(room, made["api_key"]["key"]) as app:
            await renamed(app)
            code = (await app.post("/v1/keys/codes", json={"nick": "tester"})).json()["code"]
            await claim(room.api, code, 404)  # who operates does not own it
            await claim(other.api, code, 404)
            tester = await claim(maria, code)
            assert tester["agent"]["nick"] == "tester"
            assert tester["scopes"] == ["read", "send", "task"]
            sessions = (await maria.get("/v1/sessions")).json()["sessions"]
            assert {each["nick"] for each in sessions} == {"counter", "tester"}

            code = (await app.post("/v1/keys/codes", json={})).json()["code"]
            rotated = await claim(maria, code.upper())
            assert rotated["agent"]["uid"] == made["uid"]
            assert (await app.get("/v1/me")).status_code == 401


@pytest.mark.requirement("mcp-key-by-code")
async def test_a_code_is_worth_nothing_once_it_is_too_old_or_its_key_revoked(
    room: TaskRoom, monkeypatch: pytest.MonkeyPatch
):
    async with session(room, "app", query="?tools=all") as app:
        code = await code_of(app, "a2a_rotate_api_key")
        offered = room.parts.claims
        later = offered._clock() + claims.LIFE + 1
        with monkeypatch.context() as patch:
            patch.setattr(offered, "_clock", lambda: later)
            await claim(room.api, code, 404)
        assert (await room.api.delete(f"/v1/keys/{app.key_id}")).status_code == 200
        await claim(room.api, code, 409)


async def test_people_and_workers_get_no_codes(room: TaskRoom):
    answer = await room.api.post("/v1/keys/codes", json={})
    assert answer.status_code == 403
    async with session(room, "app") as app:
        answer = await app.api.post("/v1/keys/codes", json={"nick": "Not A Nick!"})
        assert answer.status_code == 422
