"""Receipts for mail that is read by a tool: `delivered` once the result has left, `seen` when the next call begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from postroom.control.http_protocol import DeadlineProtocol
from tests.control.taskroom import TaskRoom, task_room
from tests.mcp.clients import GENERATIONS, Session, ended, session

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("mcp-same-operation")]


@pytest.fixture(scope="module")
async def room(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as running:
        yield running


async def send(app: Session, to: str, text: str) -> str:
    answer = await app.api.post("/v1/messages", json={"to": to, "text": text})
    return answer.json()["id"]


async def reached(app: Session, message: str, state: str) -> tuple[str, str]:
    """State and way of a message, once it has reached a state."""
    answer = await app.api.get(f"/v1/messages/{message}", params={"wait": state, "timeout": 5})
    mail = answer.json()
    return mail["state"], mail.get("how", "")


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_mail_in_a_result_is_delivered_and_seen_when_the_next_call_begins(
    room: TaskRoom, mode: str
):
    async with session(room, "app", mode) as app, session(room, "api", mode) as api:
        sent = await send(app, "@api", "Which one?")
        await api.call("a2a_whoami")
        assert await reached(app, sent, "") == ("accepted", "")
        await api.call("a2a_check_inbox")
        assert await reached(app, sent, "delivered") == ("delivered", "tool")
        await api.call("a2a_whoami")
        assert await reached(app, sent, "seen") == ("seen", "tool")
        assert "seen (tool)" in await app.call("a2a_message_status", message=sent)
        assert await api.call("a2a_check_inbox") == "No unread messages."


async def test_a_call_that_ran_beside_the_one_that_read_is_no_proof(room: TaskRoom):
    async with session(room, "app") as app, session(room, "api") as api:
        beside = asyncio.create_task(api.call("a2a_ask", to="@app", text="Slow?", wait=10))
        slow = await app.api.get("/v1/inbox", params={"wait": 10, "after": 0, "unread": True})
        sent = await send(app, "@api", "Read me")
        await api.call("a2a_check_inbox")
        assert await reached(app, sent, "delivered") == ("delivered", "tool")
        await app.call("a2a_reply", message=slow.json()["messages"][0]["id"], text="Yes.")
        assert "| Yes." in await beside
        assert await reached(app, sent, "") == ("delivered", "tool")


async def test_of_long_mail_the_last_page_is_what_delivers_it(room: TaskRoom):
    async with session(room, "app") as app, session(room, "api") as api:
        sent = await send(app, "@api", "a" * 7000 + "END")
        shown = await api.call("a2a_check_inbox")
        assert "END" not in shown
        assert "a2a_read_message" in shown
        first = await api.call("a2a_read_message", message=sent)
        assert "Page 1 of 2" in first
        assert await reached(app, sent, "") == ("accepted", "")
        assert "END" in await api.call("a2a_read_message", message=sent, page=2)
        assert await reached(app, sent, "delivered") == ("delivered", "tool")


async def test_a_result_that_did_not_leave_delivers_nothing(
    room: TaskRoom, monkeypatch: pytest.MonkeyPatch
):
    async with session(room, "app") as app, session(room, "api") as api:
        sent = await send(app, "@api", "Lost?")
        inboxes, left = type(room.parts.inboxes), asyncio.Event()
        past, lost = inboxes.past, DeadlineProtocol.connection_lost

        async def slow(*args: Any, **given: Any) -> Any:
            asking.cancel()
            await left.wait()
            return await past(*args, **given)

        def leaves(self: DeadlineProtocol, why: Exception | None) -> None:
            lost(self, why)
            left.set()

        with monkeypatch.context() as patch:
            patch.setattr(inboxes, "past", slow)
            patch.setattr(DeadlineProtocol, "connection_lost", leaves)
            params = {"name": "a2a_check_inbox", "arguments": {}}
            asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            accept = {"accept": "application/json"}
            asking = asyncio.create_task(api.api.post("/mcp", json=asked, headers=accept))
            await asyncio.wait([asking])
            async with asyncio.timeout(5):
                await left.wait()
            await ended(room, api)
        assert await reached(app, sent, "") == ("accepted", "")
        assert "| Lost?" in await api.call("a2a_check_inbox")
        assert await reached(app, sent, "delivered") == ("delivered", "tool")


async def test_a_caller_that_gives_receipts_itself_is_told_the_ids_and_nothing_is_said_for_it(
    room: TaskRoom,
):
    headers = {"postroom-receipts": "caller"}
    async with session(room, "app") as app, session(room, "api", **headers) as api:
        sent = await send(app, "@api", "Yours to say")
        await send(app, "@api", "b" * 8000)
        result = await api.client.call_tool("a2a_check_inbox", {})
        assert (result.meta or {})["postroom/messages"] == [sent]
        await api.call("a2a_whoami")
        assert await reached(app, sent, "") == ("accepted", "")


async def test_what_was_handed_over_is_known_after_a_restart_of_the_tools(room: TaskRoom):
    from postroom.control.ops import mcp

    async with session(room, "app") as app, session(room, "api") as api:
        sent = await send(app, "@api", "Kept?")
        await api.call("a2a_check_inbox")
        await reached(app, sent, "delivered")
        mcp._server.cache_clear()
        await api.call("a2a_whoami")
        assert (await reached(app, sent, "seen"))[0] == "seen"


async def test_a_call_that_follows_at_once_proves_what_the_one_before_gave(room: TaskRoom):
    async with session(room, "app") as app, session(room, "api") as api:
        for text in ("one", "two", "three"):
            sent = await send(app, "@api", text)
            assert f"| {text}" in await api.call("a2a_check_inbox")
            await api.call("a2a_whoami")
            assert await reached(app, sent, "") == ("seen", "tool")
