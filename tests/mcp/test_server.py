"""The MCP server by the official client, over a real socket and a real log: each tool, in both generations."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator

import pytest

from postroom.mcp.tools import INSTRUCTIONS, TOOLS
from postroom_a2a.task_state import TaskState
from tests.control.taskroom import TaskRoom, task_room
from tests.mcp.clients import GENERATIONS, session

pytestmark = pytest.mark.anyio
HEX = re.compile(r"[0-9a-f]{32}")


@pytest.fixture(scope="module")
async def room(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[TaskRoom]:
    async with task_room(tmp_path_factory.mktemp("room")) as running:
        yield running


def id_in(text: str) -> str:
    found = HEX.search(text)
    assert found, text
    return found[0]


@pytest.mark.parametrize("mode", GENERATIONS)
async def test_a_client_of_either_generation_gets_the_tools_and_uses_them(
    room: TaskRoom, mode: str
) -> None:
    async with session(room, "app", mode) as app, session(room, "api", mode) as api:
        tools = (await app.client.list_tools()).tools
        assert app.client.instructions == INSTRUCTIONS
        assert [tool.name for tool in tools] == [each.name for each in TOOLS.values() if each.usual]

        assert f"@app (external) in the organisation default, uid {app.uid}" in await app.call(
            "a2a_whoami"
        )
        assert "@api (external" in await app.call("a2a_list_agents", kind="external")

        sent = id_in(await app.call("a2a_send_message", to="@api", text="Which shape?"))
        shown = await api.call("a2a_check_inbox")
        assert f"From @app (agent), message {sent}" in shown
        assert "| Which shape?" in shown
        await api.call("a2a_reply", message=sent, text="A list.")
        shown = await app.call("a2a_check_inbox")
        assert f"It answers your message {sent}." in shown
        assert "| A list." in shown
        assert await api.call("a2a_check_inbox") == "No unread messages."


async def test_who_asks_gets_the_answer_or_is_told_that_it_comes_as_mail(room: TaskRoom) -> None:
    async with session(room, "app") as app, session(room, "api") as api:
        asking = asyncio.create_task(app.call("a2a_ask", to="@api", text="Ready?"))
        await api.api.get("/v1/inbox", params={"wait": 10, "after": 0, "unread": True})
        shown = await api.call("a2a_check_inbox")
        assert "| Ready?" in shown
        await api.call("a2a_reply", message=id_in(shown), text="Yes.")
        assert "| Yes." in await asking

        late = await app.call("a2a_ask", to="@api", text="And now?", wait=0.05)
        assert "No answer yet; it will come as mail." in late
        await api.call("a2a_reply", message=id_in(late), text="Now, too.")
        assert "| Now, too." in await app.call("a2a_check_inbox")


async def test_a_task_is_given_reported_on_and_canceled_by_tools(room: TaskRoom) -> None:
    async with session(room, "app") as app, session(room, "api") as api:
        task = id_in(await app.call("a2a_delegate_task", to="@api", text="Count."))
        assert task in await api.call("a2a_check_inbox")
        assert "working" in await api.call("a2a_report_task", task=task, state="working")

        asking = asyncio.create_task(api.call("a2a_ask_human", task=task, text="How far?"))
        assert "How far?" in await app.call("a2a_get_task", task=task, wait=10)
        answer = await app.api.post(f"/v1/tasks/{task}/answer", json={"text": "To ten."})
        assert answer.status_code == 200
        assert "To ten." in await asking

        await api.call(
            "a2a_report_task", task=task, state="completed", text="1 to 10", artifact="numbers"
        )
        shown = await app.call("a2a_get_task", task=task)
        assert "Result numbers:\n| 1 to 10" in shown
        assert TaskState.COMPLETED in shown

        other = id_in(await app.call("a2a_delegate_task", to="@api", text="Wait."))
        await api.call("a2a_report_task", task=other, state="working")
        canceling = asyncio.create_task(app.call("a2a_cancel_task", task=other, reason="enough"))
        await asyncio.wait([canceling], timeout=0.3)
        await api.tried("a2a_report_task", task=other, state="canceled")
        assert "canceled" in await canceling


async def test_a_person_is_asked_and_answers(room: TaskRoom) -> None:
    async with session(room, "app") as app:
        asking = asyncio.create_task(app.call("a2a_ask_human", text="May I?"))
        mails = await room.api.get("/v1/inbox", params={"wait": 10, "after": 0, "unread": True})
        (mail,) = [each for each in mails.json()["messages"] if each["text"] == "May I?"]
        body = {"to": "@app", "text": "You may.", "reply_to": mail["id"]}
        assert (await room.api.post("/v1/messages", json=body)).status_code == 201
        assert "| You may." in await asking


async def test_who_asks_for_all_tools_gets_five_more_and_uses_them(room: TaskRoom) -> None:
    async with session(room, "app", query="?tools=all") as app:
        assert {tool.name for tool in (await app.client.list_tools()).tools} == set(TOOLS)
        skill = {"id": "count", "name": "count", "description": "Counts.", "tags": ["numbers"]}
        shown = await app.call("a2a_set_capabilities", description="I count.", skills=[skill])
        assert shown.splitlines() == [
            "@app (external, online)",
            "| I count.",
            "| count (count): Counts.",
        ]
        assert await app.call("a2a_get_agent_capabilities", agent="@app") == shown
        assert "@app" in await app.call("a2a_list_agents", skill="count")
        message = id_in(await app.call("a2a_send_message", to="@maria", text="hi"))
        assert "accepted" in await app.call("a2a_message_status", message=message)
        assert "scope 'admin'" in await app.refused("a2a_set_capabilities", nick="other")


async def test_a_repeated_call_with_the_same_key_is_the_same_request(room: TaskRoom) -> None:
    async with session(room, "app") as app, session(room, "api"):
        for tool in ("a2a_send_message", "a2a_delegate_task"):
            first = await app.call(tool, to="@api", text="once", key="k1")
            assert await app.call(tool, to="@api", text="once", key="k1") == first
